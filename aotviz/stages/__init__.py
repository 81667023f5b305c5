"""The stages of the pipeline, one file each: a frozen value comes in, and a new one goes out."""
