//go:build unix

package providers_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

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

// member is a file of an archive.
type member struct {
	name, content string
	mode          fs.FileMode
}

func archive(t *testing.T, members ...member) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(m.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(m.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "archive.zip")
	if err := errors.Join(z.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// Other jobs can write to the mirror. A package appears only with a locked hash, as a whole, and inside its folder.
func TestOnlyLockedArchivesAreUnpacked(t *testing.T) {
	program := member{"terraform-provider-x_v1", "program", 0o755}
	text := member{"docs/README", "text", 0o644}
	good := archive(t, program, text)
	h1, err := dirhash.HashZip(good, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	zh := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("zh:%x", sha256.Sum256(b))
	}
	half := filepath.Join(t.TempDir(), "half.zip")
	whole, err := os.ReadFile(good)
	if err == nil {
		err = os.WriteFile(half, whole[:len(whole)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	outside := archive(t, program, member{"../escaped", "x", 0o644})
	link := archive(t, program, member{"link", "/etc/passwd", fs.ModeSymlink | 0o777})
	twice := archive(t, program, program)
	for name, tt := range map[string]struct {
		file     string
		hashes   []string
		want     error
		unpacked bool
	}{
		"the content is locked": {good, []string{"h1:AAAA", h1}, nil, true},
		// Terraform refuses a package in its cache whose content is not locked: it unpacks the archive itself.
		"only the archive is locked": {good, []string{zh(good)}, nil, false},
		"nothing is locked":          {good, nil, providers.ErrOtherContent, false},
		"another content is locked":  {archive(t, program), []string{h1, zh(good)}, providers.ErrOtherContent, false},
		"it is damaged":              {half, []string{h1}, providers.ErrOtherContent, false},
		"it is absent":               {filepath.Join(t.TempDir(), "no.zip"), []string{h1}, fs.ErrNotExist, false},
		"a file would be outside":    {outside, []string{zh(outside)}, providers.ErrOtherContent, false},
		"it has a symlink":           {link, []string{zh(link)}, providers.ErrOtherContent, false},
		"it has a file twice":        {twice, []string{zh(twice)}, providers.ErrOtherContent, false},
		"it is not an archive":       {os.Args[0], []string{h1}, providers.ErrOtherContent, false},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			to := filepath.Join(parent, "1.0.0", "linux_arm64")
			earlier := filepath.Join(to, "earlier")
			if err := errors.Join(os.MkdirAll(to, 0o700), os.WriteFile(earlier, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := (providers.Locked{Hashes: tt.hashes}).Unpack(tt.file, to); !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			_, err := os.Stat(earlier)
			if kept := err == nil; kept == tt.unpacked {
				t.Errorf("the earlier package is kept: %t", kept)
			}
			if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
				t.Errorf("beside the package are %v, %v", left, err)
			}
			if !tt.unpacked {
				return
			}
			if got, err := dirhash.HashDir(to, "", dirhash.Hash1); err != nil || got != h1 {
				t.Errorf("the package has the hash %s, %v, want the archive's %s", got, err, h1)
			}
			if st, err := os.Stat(filepath.Join(to, program.name)); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("the program has the mode %v, %v, want 0700", st, err)
			}
		})
	}
}
