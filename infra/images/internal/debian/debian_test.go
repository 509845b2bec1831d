package debian_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/infra/images/internal/debian"
)

func TestVersionsAreInDebiansOrder(t *testing.T) {
	ordered := []string{"1.0~rc1-1", "1.0-1", "1.0-1+deb13u1", "1.0-2", "1.0a-1", "1.0+a-1", "1.2-1", "1.10-1", "1:0.1-1"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := debian.Compare(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("Compare(%q, %q) = %d", a, b, got)
			}
		}
	}
}

const index = `Package: git
Version: 1:2.47.3-0+deb13u1
Depends: libc6 (>= 2.38), ssl-3 | openssl, perl
Filename: pool/git.deb
SHA256: aa

Package: libc6
Version: 2.41-12
Filename: pool/old.deb

Package: libssl
Version: 3
Pre-Depends: libc6
Provides: ssl-3 (= 3)
Filename: pool/ssl.deb

Package: unrelated
Version: 1
`

// The image has what its packages need, in the newest version of all indexes, and nothing else.
func TestClosureHasTheNewestDependencies(t *testing.T) {
	x := debian.Index{}
	for _, file := range []string{index, "Package: libc6\nVersion: 2.41-12+deb13u1\nFilename: pool/new.deb\n", "Package: libc6\nVersion: 2.40-1\n"} {
		if err := x.Add(strings.NewReader(file)); err != nil {
			t.Fatal(err)
		}
	}
	found, err := x.Closure([]string{"git"}, []string{"perl"})
	var files []string
	for _, p := range found {
		files = append(files, p.Filename)
	}
	if want := []string{"pool/git.deb", "pool/new.deb", "pool/ssl.deb"}; err != nil || !slices.Equal(files, want) {
		t.Errorf("the closure is %q, %v; want %q", files, err, want)
	}
	if _, err := x.Closure([]string{"git"}, nil); err == nil || !strings.Contains(err.Error(), "perl") {
		t.Errorf("a missing dependency gives %v", err)
	}
}
