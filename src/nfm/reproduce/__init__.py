"""The paper, reproduced: each table and figure is a study; runs make rows, rows make claims, tables and figures."""
