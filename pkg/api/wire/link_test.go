package wire_test

import (
	"net/url"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

func TestOnlyOwnLinksNameTheNextPage(t *testing.T) {
	query := url.Values{"limit": {"5"}, "cursor": {"a b&<>\","}, "install": {"acme"}}
	link := wire.NextLink(query, `c<">;,d`)
	if query.Get("cursor") != "a b&<>\"," {
		t.Error("NextLink changed the query of the request")
	}
	for _, tt := range []struct {
		want  string
		links []string
	}{
		{`c<">;,d`, []string{link}},
		{`c<">;,d`, []string{`</style.css>; rel=preload; as=style`, link}},
		{"p2", []string{wire.NextLink(nil, "p2")}},
		{"", nil},
		{"", []string{""}},
		{"", []string{`<?cursor=x>; rel="prev"`, `<https://elsewhere.example/?cursor=x>; rel="next"`, `<?limit=5>; rel="next"`, `<?%zz>; rel="next"`}},
	} {
		if got := wire.NextCursor(tt.links); got != tt.want {
			t.Errorf("the cursor of %q is %q, want %q", tt.links, got, tt.want)
		}
	}
}
