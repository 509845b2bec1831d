package terraform

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNeedsInit(t *testing.T) {
	const it = `resource "terraform_data" "x" {}`
	for name, tc := range map[string]struct {
		files map[string]string
		needs bool
	}{
		"built-in resources alone":         {map[string]string{"main.tf": it, "v.tf": `variable "a" {}`, "README.md": "module"}, false},
		"a version constraint":             {map[string]string{"main.tf": "terraform {\n  required_version = \"> 1\"\n}\n" + it}, false},
		"a resource of a provider":         {map[string]string{"main.tf": `resource "aws_vpc" "x" {}`}, true},
		"a data source of a provider":      {map[string]string{"main.tf": `data "aws_vpc" "x" {}`}, true},
		"a module":                         {map[string]string{"main.tf": "module \"m\" {\n  source = \"./m\"\n}"}, true},
		"a provider block":                 {map[string]string{"main.tf": `provider "aws" {}`}, true},
		"required providers":               {map[string]string{"main.tf": "terraform {\n  required_providers {\n  }\n}"}, true},
		"a backend of its own":             {map[string]string{"main.tf": "terraform {\n  backend \"s3\" {}\n}"}, true},
		"a chosen provider":                {map[string]string{"main.tf": "resource \"terraform_data\" \"x\" {\n  provider = other\n}"}, true},
		"an unknown block":                 {map[string]string{"main.tf": `ephemeral "x" "y" {}`}, true},
		"JSON":                             {map[string]string{"main.tf.json": `{}`}, true},
		"a lock file":                      {map[string]string{"main.tf": it, ".terraform.lock.hcl": ""}, true},
		"a file that does not parse":       {map[string]string{"main.tf": `resource {`}, true},
		"OpenTofu's own files, a provider": {map[string]string{"main.tofu": `resource "aws_vpc" "x" {}`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := needsInit(dir); got != tc.needs {
				t.Errorf("needsInit returns %v", got)
			}
		})
	}
}

func TestOutputsOfAState(t *testing.T) {
	for name, tc := range map[string]struct {
		state string
		n     int
		err   bool
	}{
		"no state":           {"", 0, false},
		"no outputs":         {`{"version":4}`, 0, false},
		"two":                {`{"version":4,"outputs":{"a":{"value":1,"type":"number"},"b":{"value":"x","type":"string","sensitive":true}}}`, 2, false},
		"encrypted":          {`{"serial":1,"encrypted_data":"AAAA","encryption_version":"v0"}`, 0, true},
		"of a newer version": {`{"version":5,"outputs":{}}`, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := outputsOf([]byte(tc.state))
			if (err != nil) != tc.err || len(got) != tc.n {
				t.Errorf("outputs %v, error %v; want %d outputs", got, err, tc.n)
			}
		})
	}
}
