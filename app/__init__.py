"""The roof: the command table, the chain behind `build` and `pretrain`, report and demo."""
