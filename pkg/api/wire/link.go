package wire

import (
	"maps"
	"net/url"
	"strings"
)

// HeaderLink is in the response with a page of a listing, unless the page is the
// last one. Headers arrive before the body, so a caller can already request the
// next page while it reads this one.
const HeaderLink = "Link"

// NextLink returns the value of HeaderLink (RFC 8288) for a page that was requested
// with query: a link to the next page. The link is relative to the page's URL, because
// a server behind a proxy does not know that URL.
func NextLink(query url.Values, cursor string) string {
	next := maps.Clone(query)
	if next == nil {
		next = url.Values{}
	}
	next.Set("cursor", cursor)
	return "<?" + next.Encode() + `>; rel="next"`
}

// NextCursor returns the cursor in the first link that has the form of a NextLink, or
// "" if there is none. It ignores other links, such as the links of a proxy.
func NextCursor(links []string) string {
	for _, l := range links {
		reference, ours := strings.CutSuffix(l, `>; rel="next"`)
		encoded, relative := strings.CutPrefix(reference, "<?")
		if !ours || !relative {
			continue
		}
		if query, err := url.ParseQuery(encoded); err == nil && query.Get("cursor") != "" {
			return query.Get("cursor")
		}
	}
	return ""
}
