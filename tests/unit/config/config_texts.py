"""Configuration files for the tests: short ones, and ones in which every key is written."""

COORDINATOR = """\
federation: churn
listen: 127.0.0.1:7000        # port 0 picks one
state: ./coordinator-state
clients: [bank, shop, telco]
training:
  method: laser
  representation_dim: 32
  batch_size: 128
  epochs: 20
  seed: 7
"""

CLIENT = """\
federation: churn
name: bank
listen: 127.0.0.1:7001
advertise: 127.0.0.1:7001     # what peers dial; default: listen
coordinator: 127.0.0.1:7000
state: ./bank-state
id_secret_file: id.secret
data:
  train: bank_train.csv       # or .parquet, .npz
  test: bank_test.csv         # optional
  id: customer_id
  label: churned              # optional; without it this client has no head
  # features: [...] or exclude: [...]; task: auto | multiclass | binary | regression
model: {representation: mlp, hidden: [64, 64], fusion: linear}
optimizer: {name: adam, lr: 0.001}   # sgd | adam | adamw
device: auto                  # cuda when there is one
# tls: {ca: ca.pem, cert: bank.pem, key: bank.key}
"""
