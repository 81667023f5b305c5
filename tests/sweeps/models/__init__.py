"""`make sweep-models`: models of many packages, trained for three steps by torch.compile, beside eager and torch's own.

`catalogue.py` keeps the list of models, which `vision.py`, `language.py` and `science.py` fill. `training.py` trains
one, `judging.py` compares what came out, and `__main__.py` goes through them all.
"""
