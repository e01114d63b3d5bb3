"""The only room that imports vLLM: inside functions, so that loading it is cheap.

`llm.py` alone imports it at once, because its class is vLLM's own.
"""
