"""The page of operators: a shell in HTML, small modules of JavaScript, and a style sheet.

Files::

    routes.py      serves the page, and logs operators in and out
    page.html      the shell; page.css its looks
    page.js        who is logged in, which view is shown, when it is asked for again
    api.js         requests to the API, one at a time
    dom.js         elements, tables and drawings; text of others is only ever text
    overview.js    health, rates, latencies, memory
    clients.js     the list of clients, and one of them
    lists.js       retained messages, bans, tables and readers, events, control
"""
