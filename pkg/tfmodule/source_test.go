package tfmodule_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/tfmodule"
)

func TestSourcesAreReadAsTheToolsReadThem(t *testing.T) {
	const sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for text, want := range map[string]tfmodule.Source{
		"./a/../b":                                     {Kind: tfmodule.FromPath, Folder: "b"},
		"../b":                                         {Kind: tfmodule.FromPath, Folder: "../b"},
		"terraform-aws-modules/vpc/aws":                {Kind: tfmodule.FromRegistry, Host: "registry.opentofu.org", Address: "terraform-aws-modules/vpc/aws", Folder: "."},
		"a/b/c//modules/x/../y":                        {Kind: tfmodule.FromRegistry, Host: "registry.opentofu.org", Address: "a/b/c", Folder: "modules/y"},
		"App.Terraform.io/a/b/c":                       {Kind: tfmodule.FromRegistry, Host: "app.terraform.io", Address: "a/b/c", Folder: "."},
		"localhost:8080/a/b/c":                         {Kind: tfmodule.FromRegistry, Host: "localhost:8080", Address: "a/b/c", Folder: "."},
		"github.com/a/b":                               {Kind: tfmodule.FromGit, Address: "https://github.com/a/b.git", Folder: "."},
		"github.com/a/b.git//x?ref=v1":                 {Kind: tfmodule.FromGit, Address: "https://github.com/a/b.git", Ref: "v1", Folder: "x"},
		"github.com/a/b/c/d?ref=v1":                    {Kind: tfmodule.FromGit, Address: "https://github.com/a/b.git", Ref: "v1", Folder: "c/d"},
		"git::https://x.io/a//b?ref=v1&depth=1":        {Kind: tfmodule.FromGit, Address: "https://x.io/a", Ref: "v1", Folder: "b"},
		"git::http://127.0.0.1:80/a":                   {Kind: tfmodule.FromGit, Address: "http://127.0.0.1:80/a", Folder: "."},
		"https://x.io/a.zip":                           {Kind: tfmodule.FromArchive, Address: "https://x.io/a.zip", Format: "zip", Folder: "."},
		"https://x.io/a.tgz//b?checksum=sha256:" + sum: {Kind: tfmodule.FromArchive, Address: "https://x.io/a.tgz", Format: "tar.gz", SHA256: sum, Folder: "b"},
		"https://x.io/a//*?archive=tar.gz&token=t":     {Kind: tfmodule.FromArchive, Address: "https://x.io/a?token=t", Format: "tar.gz", Folder: "*"},
	} {
		if got, err := tfmodule.ParseSource(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
}

// A build must fetch nothing from its own disk, by another program, or without a check of the server.
func TestSourcesThatNoBuildFetchesAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "/etc", "~/x", "vpc", "a/b", "file:///etc", "git::file:///etc", "git::/etc", "git::ssh://git@x.io/a", "git::git@x.io:a", "git@github.com:a/b.git", "git::ext::sh -c true",
		"s3::https://s3.amazonaws.com/a/b.zip", "gcs::https://x/y", "hg::https://x.io/a", "oci://x.io/a", "bitbucket.org/a/b", "http://x.io/a.zip", "http://169.254.169.254/a.zip", "git::http://10.0.0.1/a",
		"https://u:p@x.io/a.zip", "git::https://u@x.io/a", "https://x.io/a", "https://x.io/a.tar.xz", "https://x.io/a.zip#f", "https://x.io/a.zip?checksum=md5:1",
		"git::https://x.io/a?ref=--upload-pack=x", "git::https://x.io/a?ref=a..b", "git::https://x.io/a?ref=", "git::https://x.io/a?sshkey=x", "git::https://x.io/a//../../b", "a/b/c//..", "github.com/a", "github.com/a/b/../../..",
		"git::https://x.io/a b", "https://x.io/a.zip?x=%zz",
	} {
		if got, err := tfmodule.ParseSource(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

// The version of a call is that of its own block, before or after the source.
func TestCallsHaveTheirVersions(t *testing.T) {
	for name, src := range map[string]string{
		"main.tf":      "module \"a\" {\n  version = \"~> 1\"\n  source = \"x/a/y\"\n}\nmodule \"b\" {\n  source = \"x/b/y\"\n  version = (\"2.0.0\")\n}\nmodule \"c\" { source = \"x/c/y\" }\nmodule \"d\" {\n  source = var.d\n  version = \"9\"\n}\n",
		"main.tf.json": `{"module": {"a": {"version": "~> 1", "source": "x/a/y"}, "b": {"source": "x/b/y", "version": "2.0.0"}, "c": {"source": "x/c/y"}, "d": {"source": "${var.d}", "version": "9"}}}`,
	} {
		var got []string
		for _, c := range tfmodule.Calls(name, []byte(src)) {
			got = append(got, c.Name+" "+c.Version)
		}
		if want := "a ~> 1,b 2.0.0,c "; strings.Join(got, ",") != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
