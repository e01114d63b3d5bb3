"""The only room that imports vLLM, and only inside functions: loading it is cheap."""
