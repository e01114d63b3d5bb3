"""What will come: read traffic of any common form into columns, and describe it.

This room imports no engine and no vLLM. Its libraries come with the extra
`plan`; where they are missing, importing it says so in a sentence. Invariant:
rows are never held as Python objects all at once; every pass is over batches
of columns, in bounded memory.
"""

from importlib.util import find_spec

from chunkwise.errors import EngineTrouble

_LIBRARIES = ("datasketches", "jinja2", "numpy", "plotly", "polars", "tokenizers")

if _missing := [name for name in _LIBRARIES if find_spec(name) is None]:
    raise EngineTrouble(
        f"Analysing traffic needs {', '.join(_missing)}: run `pip install 'chunkwise[plan]'`."
    )
