"""The web page of operators: an HTML file, JavaScript modules, and a style sheet.

Files::

    routes.py      serves the files, and logs operators in and out
    page.html      the skeleton of the page
    page.css       the style sheet
    page.js        login and logout, choice of the view, periodic refresh
    api.js         requests to the API, one at a time
    dom.js         builds elements, tables and charts; inserts data as text, never as HTML
    overview.js    view of health, rates, latencies and memory
    clients.js     views of the list of clients, and of one client
    lists.js       views of retained messages, bans, tables and readers, events, control
"""
