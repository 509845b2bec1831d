package fairlead_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestVersionNameIsNeitherIDNorDigest(t *testing.T) {
	pattern := regexp.MustCompile(fairlead.VersionNamePattern)
	for name, test := range map[string]struct{ accepted, matches bool }{
		"v1.4.0":                             {true, true},
		"1.4.0+build.7_rc-1":                 {true, true},
		"A":                                  {true, true},
		"d670460b4b4aece5915caf5c68d12f":     {true, true}, // the commit of a repository
		strings.Repeat("x", 64):              {true, true},
		strings.Repeat("x", 65):              {false, false},
		"":                                   {false, false},
		"-v1":                                {false, false}, // would be a flag
		".":                                  {false, false}, // would be a folder
		"..":                                 {false, false},
		"a/b":                                {false, false},
		"v 1":                                {false, false},
		"v1\n":                               {false, false},
		"é":                                  {false, false},
		"ver_7cca6d766eef":                   {false, true}, // would be the beginning of an identifier
		"ver_":                               {false, true},
		"version1":                           {true, true},
		strings.Repeat("0a", 32):             {false, true}, // would be a digest
		strings.Repeat("0A", 32):             {false, true},
		"sha256:" + strings.Repeat("0a", 28): {false, false},
	} {
		if err := fairlead.CheckVersionName(name); (err == nil) != test.accepted {
			t.Errorf("%q: %v", name, err)
		}
		if pattern.MatchString(name) != test.matches {
			t.Errorf("%q matches the pattern: %v", name, !test.matches)
		}
	}
}
