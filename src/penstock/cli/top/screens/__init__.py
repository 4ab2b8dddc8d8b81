"""The screens of `penstock top`, with Textual, which nothing outside this package imports.

    app      the main screen: the head, the table of clients, the keys
    client   one client: its window and queue, and the rest
    prompt   a question with one line to answer, and a page of text

Texts of clients come escaped (``penstock.cli.top.columns``, ``pictures``), and are shown as `Text`
of Rich, so that no bracket in them is markup.
"""
