"""The Dispatcher: takes submissions, stores accepted jobs in etcd, starts them on a shard, retires ended ones."""
