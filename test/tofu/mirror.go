package tofu

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/tools/program"
)

// Mirror is a mirror of providers on disk. It has one provider, which NewMirror builds:
// hashicorp/time in the version that tools/providers pins.
type Mirror struct {
	Config string   // path of a CLI configuration that uses the mirror
	Files  []string // the provider's file for each tool's default registry host: a program, or an archive
}

// NewMirror builds the provider and creates the mirror, unpacked or as archives. A tool links
// to unpacked providers. It unpacks archives in the same way as downloaded ones.
func NewMirror(t testing.TB, packed bool) Mirror {
	t.Helper()
	const version = "0.14.2"
	dir := t.TempDir()
	content, err := os.ReadFile(program.Other(t, "tools/providers", "github.com/hashicorp/terraform-provider-time"))
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(dir, "provider") // a copy, because a test may change the mirror's files
	program.Write(t, built, content)
	m := Mirror{Config: filepath.Join(dir, "tools.tfrc")}
	platform, provider := runtime.GOOS+"_"+runtime.GOARCH, "terraform-provider-time_v"+version
	for _, host := range []string{"registry.opentofu.org", "registry.terraform.io"} {
		at := filepath.Join(dir, "mirror", host, "hashicorp", "time")
		file := filepath.Join(at, version, platform, provider)
		if packed {
			file = filepath.Join(at, fmt.Sprintf("terraform-provider-time_%s_%s.zip", version, platform))
		}
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		switch {
		case err == nil && packed:
			err = Archive(file, provider, built)
		case err == nil:
			err = os.Link(built, file)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.Files = append(m.Files, file)
	}
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(dir, "mirror"))
	if err := os.WriteFile(m.Config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// Archive writes a zip archive with one program, named name, to path.
func Archive(path, name, program string) error {
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	z := zip.NewWriter(out)
	h := &zip.FileHeader{Name: name, Method: zip.Store}
	h.SetMode(0o755)
	w, err := z.CreateHeader(h)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	return z.Close()
}
