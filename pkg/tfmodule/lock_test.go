package tfmodule_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/pkg/tfmodule"
)

func TestProvidersOfALockFile(t *testing.T) {
	const lock = `# This file is maintained automatically by "tofu init".
provider "registry.opentofu.org/hashicorp/aws" {
  version     = "5.100.0"
  constraints = "~> 5.0"
  hashes = [
    "zh:2",
    "h1:1",
  ]
}

provider "registry.opentofu.org/hashicorp/null" {
  version = "3.2.4"
}
`
	all, ok := tfmodule.Providers([]byte(lock))
	if !ok || len(all) != 2 || all[0].Address != "registry.opentofu.org/hashicorp/aws" || all[0].Version != "5.100.0" || !slices.Equal(all[0].Hashes, []string{"h1:1", "zh:2"}) || len(all[1].Hashes) != 0 {
		t.Errorf("the providers are %+v (%v)", all, ok)
	}
	if all, ok := tfmodule.Providers(nil); !ok || len(all) != 0 {
		t.Errorf("an empty file has %+v (%v)", all, ok)
	}
	for name, text := range map[string]string{
		"no HCL":                  "provider {",
		"no version":              `provider "a" {}`,
		"hashes that are no list": "provider \"a\" {\n  version = \"1.0.0\"\n  hashes = 1\n}\n",
		"a computed version":      "provider \"a\" {\n  version = var.version\n}\n",
	} {
		if all, ok := tfmodule.Providers([]byte(text)); ok {
			t.Errorf("%s: %+v", name, all)
		}
	}
}
