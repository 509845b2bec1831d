package main

import (
	"archive/zip"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/tools/shortrun"
)

// Each function is built as Lambda requires it: a static binary named bootstrap for
// arm64. Its zip has at most MaxZip bytes. Neither the binary nor the zip depends on the checkout. A short run
// builds one function.
func TestFunctionsAreBuiltForLambda(t *testing.T) {
	out := t.TempDir()
	var sizes strings.Builder
	arch, machine := "arm64", elf.EM_AARCH64
	if testing.Short() && runtime.GOARCH == "amd64" { // other tests compile the same packages for amd64
		arch, machine = "amd64", elf.EM_X86_64
	}
	all, err := filepath.Glob("../../functions/*/main.go")
	if err != nil || len(all) == 0 {
		t.Fatalf("no mains: %v", err)
	}
	mains, pattern := shortrun.OneOf(t, 0, all...), "../../functions/..."
	if testing.Short() {
		pattern = filepath.Dir(mains[0])
	}
	if err := run(t.Context(), arch, pattern, out, &sizes); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", sizes.String())
	for _, main := range mains {
		name := filepath.Base(filepath.Dir(main))
		binary := filepath.Join(out, name, "bootstrap")
		f, err := elf.Open(binary)
		if err != nil {
			t.Fatal(err)
		}
		if libraries, err := f.ImportedLibraries(); f.Machine != machine || len(libraries) > 0 || err != nil {
			t.Errorf("%s is for %s with the libraries %v (error %v), want a static binary for %s", name, f.Machine, libraries, err, machine)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if v := info.Main.Version; v != "(devel)" && v != "" {
			t.Errorf("%s has the version %q, which depends on the tags and the other files of the checkout", name, v)
		}
		archive := filepath.Join(out, name+".zip")
		z, err := zip.OpenReader(archive)
		if err != nil {
			t.Fatal(err)
		}
		if len(z.File) != 1 || z.File[0].Name != "bootstrap" || z.File[0].Mode() != 0o755 {
			t.Errorf("%s.zip contains %+v, want only an executable bootstrap", name, z.File)
		}
		if err := z.Close(); err != nil {
			t.Error(err)
		}
		before, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if len(before) > MaxZip {
			t.Errorf("%s.zip has %d bytes, more than %d", name, len(before), MaxZip)
		}
		if err := pack(binary, archive); err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(archive); err != nil || !bytes.Equal(before, after) {
			t.Errorf("packing %s.zip again gives other bytes (error %v)", name, err)
		}
	}
}
