"""VFedTrans and what only it needs: a joint SVD of each pair of clients, and its distillation."""
