"""The tasks of the GPT-2 paper in sections 3.4 to 3.8, one file each: reader, prompts and judgement."""
