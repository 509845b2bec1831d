//go:build unix

package providers_test

import (
	"testing"

	"github.com/fairlead/fairlead/runner/internal/providers"
)

func TestMirrorLocation(t *testing.T) {
	for location, want := range map[string]providers.MirrorLocation{
		"":                                {},
		"/mnt/providers":                  {Folder: "/mnt/providers"},
		"s3://states-of-acme":             {Bucket: "states-of-acme"},
		"s3://states-of-acme/providers":   {Bucket: "states-of-acme", Prefix: "providers/"},
		"s3://states-of-acme/providers/":  {Bucket: "states-of-acme", Prefix: "providers/"},
		"s3://states-of-acme/a/providers": {Bucket: "states-of-acme", Prefix: "a/providers/"},
	} {
		if got, err := providers.ParseMirror(location); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", location, got, err, want)
		}
	}
	for _, location := range []string{"mirror", "./mirror", "s3://", "s3:///providers", "s3:/mirror", "https://mirror.example", "s3://key:secret@bucket"} {
		if got, err := providers.ParseMirror(location); err == nil {
			t.Errorf("%q is accepted as %+v", location, got)
		}
	}
}

// A lock file is the vendor's. A name from it must not lead out of the mirror.
func TestArchiveNameStaysInTheMirror(t *testing.T) {
	good := providers.Locked{Address: "registry.opentofu.org/hashicorp/aws", Version: "6.34.0"}
	if name, ok := good.Archive("linux_arm64"); !ok || name != "registry.opentofu.org/hashicorp/aws/terraform-provider-aws_6.34.0_linux_arm64.zip" {
		t.Errorf("the name is %q, %t", name, ok)
	}
	for _, bad := range []providers.Locked{
		{Address: "../hashicorp/aws", Version: "6.34.0"}, {Address: "/etc/hashicorp/aws", Version: "6.34.0"}, {Address: "hashicorp/aws", Version: "6.34.0"},
		{Address: "registry.opentofu.org/hashicorp/..", Version: "6.34.0"}, {Address: "registry.opentofu.org/hashicorp/aws", Version: "../6.34.0"},
		{Address: `registry.opentofu.org/hashi"corp/aws`, Version: "6.34.0"}, {Address: "registry.opentofu.org/${x}/aws", Version: "6.34.0"}, {},
	} {
		if name, ok := bad.Archive("linux_arm64"); ok {
			t.Errorf("%+v has the archive %q", bad, name)
		}
	}
}
