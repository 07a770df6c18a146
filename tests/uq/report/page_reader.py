"""A page of HTML as a test sees it."""

from html.parser import HTMLParser

VOID = {"meta", "br", "use", "path", "rect"}


class Page(HTMLParser):
    """Elements in their order, each with its attributes and the text inside; raises where tags do not match."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        one = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(one)
        if tag not in VOID or tag == "path":
            self.open.append(one)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})

    def handle_endtag(self, tag):
        assert self.open and self.open[-1]["tag"] == tag, f"</{tag}> inside {[one['tag'] for one in self.open]}"
        self.open.pop()

    def handle_data(self, data):
        for one in self.open:
            one["text"] += data

    def all(self, *tags):
        return [one for one in self.elements if one["tag"] in tags]

    def table(self, caption):
        """The rows of a table, by its caption."""
        rows, inside = [], False
        for one in self.elements:
            if one["tag"] == "caption":
                inside = one["text"].startswith(caption)
            elif inside and one["tag"] == "tr":
                rows.append([])
            elif inside and one["tag"] in ("th", "td"):
                rows[-1].append(one["text"])
        return rows
