"""Stages of tasks on hosts: transfers of states between nodes, stages on one node and on several, and their driver."""
