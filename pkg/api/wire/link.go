package wire

import (
	"maps"
	"net/url"
	"strings"
)

// HeaderLink is on the answer with a page of a listing that goes on. It comes
// before the page, so that a caller can ask for the next one meanwhile.
const HeaderLink = "Link"

// NextLink returns the value of HeaderLink (RFC 8288): the page after one that was
// asked for with the query. The reference is relative to the page's own URL, which
// a server behind a proxy does not know.
func NextLink(query url.Values, cursor string) string {
	next := maps.Clone(query)
	if next == nil {
		next = url.Values{}
	}
	next.Set("cursor", cursor)
	return "<?" + next.Encode() + `>; rel="next"`
}

// NextCursor returns the cursor in the first value that NextLink may have made; ""
// if there is none. Links of others, such as a proxy's, are passed over.
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
