package bundle_test

import (
	"testing"

	"github.com/fairlead/fairlead/pkg/bundle"
)

// An index that was read and written twice is the same: its digest names the bundle.
func FuzzReadWhole(f *testing.F) {
	text, _ := bundle.Whole("shop", "v1", []bundle.Entry{{Kind: bundle.Artifact, Name: "web", Digest: "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", MediaType: "application/x", Size: 1, UsedBy: []string{"a", "b"}}})
	f.Add(text)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		app, version, entries, err := bundle.ReadWhole(text)
		if err != nil {
			return
		}
		once, digest := bundle.Whole(app, version, entries)
		app, version, entries, err = bundle.ReadWhole(once)
		if err != nil {
			t.Fatalf("%s is not read: %v", once, err)
		}
		if twice, again := bundle.Whole(app, version, entries); again != digest {
			t.Fatalf("%s is %s after it was read", once, twice)
		}
	})
}

// Each problem of a lock has a line.
func FuzzReadLock(f *testing.F) {
	f.Add([]byte("version: v1\nimages:\n- reference: docker.io/library/nginx:1\n  digest: sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n  mediaType: application/x\n"))
	f.Add([]byte("images: {"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, problems := bundle.Read("lock", text)
		for _, p := range problems {
			if p.Line < 1 || p.Message == "" {
				t.Fatalf("the problem %+v has no line or no text", p)
			}
		}
	})
}

// A reference in its full form stays the same.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"nginx", "nginx:1", "a.b/c@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "localhost:5000/x", "docker.io/x", "[::1]:5000/a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once, err := bundle.Normalize(s)
		if err != nil {
			return
		}
		if twice, err := bundle.Normalize(once); err != nil || twice != once {
			t.Fatalf("%q is %q, and then %q: %v", s, once, twice, err)
		}
	})
}
