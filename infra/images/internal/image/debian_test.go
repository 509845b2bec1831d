package image

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// Debian's archive replaces a package some days after a newer one appears. Then the snapshot has the pinned one.
func TestReplacedPackageComesFromTheSnapshot(t *testing.T) {
	const name, content = "pool/main/b/bash/bash_5.deb", "the pinned package"
	digest := sha256.Sum256([]byte(content))
	sum := hex.EncodeToString(digest[:])
	var asked []string
	serve := func(label, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, label)
			if r.URL.Path != "/debian/"+name || body == "" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(body)) // the client reports a broken connection
		}))
		t.Cleanup(s.Close)
		return s.URL + "/debian/"
	}
	without, changed, snapshot := serve("without", ""), serve("changed", "another build"), serve("snapshot", content)
	cache := t.TempDir()
	for _, test := range []struct {
		archives []string
		asked    []string
		refused  string // part of the error; "": none
	}{
		{[]string{without, changed}, []string{"without", "changed"}, "another digest"},
		{[]string{without, changed, snapshot}, []string{"without", "changed", "snapshot"}, ""},
		{[]string{without, changed, snapshot}, nil, ""}, // it is in the cache
	} {
		asked = nil
		b, err := fetch(t.Context(), test.archives, cache, name, sum)
		if !slices.Equal(asked, test.asked) {
			t.Errorf("asked %v, want %v", asked, test.asked)
		}
		if test.refused == "" && (err != nil || string(b) != content) {
			t.Errorf("got %q, %v", b, err)
		}
		if test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("got %v, want an error with %q", err, test.refused)
		}
	}
}

// The snapshot is asked last: it is slow, and Debian asks to spare it.
func TestSnapshotIsAskedLast(t *testing.T) {
	list := archives()
	first := slices.IndexFunc(list, func(a string) bool { return strings.HasPrefix(a, "https://snapshot.debian.org/") })
	if first < 2 {
		t.Errorf("the snapshot is number %d of %v", first, list)
	}
}
