package terraform

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/runner/internal/providers"
)

// The tool writes this file, and a person may edit it. A file that is misread would link a provider whose content the lock forbids.
func TestLockFileIsReadAsTheToolReadsIt(t *testing.T) {
	const aws = "registry.opentofu.org/hashicorp/aws"
	for consequence, tt := range map[string]struct {
		text string
		want map[string]providers.Locked
	}{
		"a provider keeps its version and hashes": {"provider \"" + aws + "\" {\n  version = \"6.1.0\"\n  constraints = \"~> 6.0\"\n  hashes = [\n    \"h1:a=\",\n    \"zh:b\",\n  ]\n}\n",
			map[string]providers.Locked{aws: {Address: aws, Version: "6.1.0", Hashes: []string{"h1:a=", "zh:b"}}}},
		"a provider without hashes is locked to its version":   {"provider \"" + aws + "\" {\n  version = \"6.1.0\"\n}\n", map[string]providers.Locked{aws: {Address: aws, Version: "6.1.0"}}},
		"a file of a later tool is read as far as it is known": {"extra \"x\" {}\nother = 1\n", map[string]providers.Locked{}},
		"an empty file locks nothing":                          {"", map[string]providers.Locked{}},
		"a file that does not parse is left to the tool":       {"provider {", nil},
		"a provider without a version is left to the tool":     {"provider \"" + aws + "\" {\n  hashes = []\n}\n", nil},
		"hashes that are no list are left to the tool":         {"provider \"" + aws + "\" {\n  version = \"6.1.0\"\n  hashes = \"h1:a=\"\n}\n", nil},
		"a version that is computed is left to the tool":       {"provider \"" + aws + "\" {\n  version = local.v\n}\n", nil},
		"a version that is null is left to the tool":           {"provider \"" + aws + "\" {\n  version = null\n}\n", nil},
	} {
		path := filepath.Join(t.TempDir(), dependencyLock)
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readLock(path)
		if err != nil || len(got) != len(tt.want) || got == nil != (tt.want == nil) || len(got) > 0 && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, %v", consequence, got, err)
		}
	}
	if got, err := readLock(filepath.Join(t.TempDir(), dependencyLock)); got != nil || err != nil {
		t.Errorf("a missing file: %+v, %v", got, err)
	}
}
