package runnerspec_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

func TestOnlyPermittedImagesAreStarted(t *testing.T) {
	image := "registry.example.com:5000/acme/tools@sha256:" + strings.Repeat("a", 64)
	for consequence, c := range map[string]struct {
		patterns []string
		want     bool
	}{
		"no list permits every image":       {nil, true},
		"the image itself":                  {[]string{"docker.io/library/debian", "registry.example.com:5000/acme/tools"}, true},
		"all below a folder":                {[]string{"registry.example.com:5000/acme/*"}, true},
		"all of a registry":                 {[]string{"registry.example.com:5000/*"}, true},
		"another image":                     {[]string{"registry.example.com:5000/acme/tool"}, false},
		"another folder":                    {[]string{"registry.example.com:5000/acm/*"}, false},
		"another registry":                  {[]string{"registry.example.com/*"}, false},
		"a name that begins with the image": {[]string{"registry.example.com:5000/acme/tools/*"}, false},
	} {
		if got := runnerspec.PermitsImage(c.patterns, image); got != c.want {
			t.Errorf("%s: %t, want %t", consequence, got, c.want)
		}
	}
}
