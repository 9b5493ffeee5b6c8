# Targets that need the laboratory or a card; the Makefile includes them while this file is there.
.PHONY: compare gpu tensorboard
compare: .venv/installed ## the default study and its report; ARGS="study=multi30k" for another
	$(BIN)/python scripts/compare.py $(ARGS)

gpu: $(if $(wildcard $(BIN)/pytest),,.venv/dev) ## all that a CUDA card can answer, into benchmarks/gpu/; goes on where it stopped
	$(BIN)/python scripts/dev/gpu.py $(ARGS)

LOGDIR ?= results/default/means
tensorboard: .venv/installed ## the mean curves of the default study; LOGDIR=results for every run
	@echo "open http://localhost:6006/?smoothing=0 (TensorBoard smooths curves unless told, and shows 0.97 for 1)"
	$(BIN)/tensorboard --logdir $(LOGDIR)
