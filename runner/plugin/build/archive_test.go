package build_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// An archive of a module is written by others. What it has writes nothing outside of its folder, and does not fill the disk.
func TestHostileArchivesOfModulesAreRefused(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	h := newHost(t)
	for name, tc := range map[string]struct {
		format  string
		content []byte
		says    string // "": it is accepted
	}{
		"a tar of git, of a folder, with paths from the folder": {"tgz", tarred(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}},
			tar.Header{Typeflag: tar.TypeDir, Name: "./"}, tar.Header{Name: "./main.tf"}, tar.Header{Typeflag: tar.TypeDir, Name: "./a/"}), ""},
		"a path that leaves the folder": {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Name: "../evil"}), "not a clean path"},
		"a path that leaves it later":   {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Name: "a/../../evil"}), "not a clean path"},
		"an absolute path":              {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Name: "/tmp/evil"}), "not a clean path"},
		"a symbolic link":               {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc/passwd"}), "only files and folders"},
		"a hard link":                   {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Typeflag: tar.TypeLink, Name: "x", Linkname: "/etc/passwd"}), "only files and folders"},
		"a device":                      {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Typeflag: tar.TypeChar, Name: "x", Devmajor: 1, Devminor: 5}), "only files and folders"},
		"a pipe":                        {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Typeflag: tar.TypeFifo, Name: "x"}), "only files and folders"},
		"a file twice":                  {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Name: "main.tf"}), "occurs twice"},
		"names that differ in case":     {"tgz", tarred(t, tar.Header{Name: "main.tf"}, tar.Header{Name: "MAIN.tf"}), "collides"},
		"a file that inflates":          {"tgz", tarred(t, tar.Header{Name: "main.tf", Size: 65 << 20}), "limit for one file"},
		"files that inflate":            {"tgz", tarred(t, tar.Header{Name: "main.tf", Size: 40 << 20}, tar.Header{Name: "b.tf", Size: 40 << 20}), "more than 64 MiB"},
		"zeros after the end":           {"tgz", gzipped(t, append(plainTar(t, tar.Header{Name: "main.tf"}), make([]byte, 4<<20)...)), "complete tar"},
		"a tar that ends early":         {"tgz", tarred(t, tar.Header{Name: "main.tf", Size: 4 << 10})[:40], "complete tar"},
		"no archive":                    {"tgz", []byte("<html>"), "not compressed"},
		"a zip":                         {"zip", zipped(t), ""},
		"a zip with a path out of it":   {"zip", zipped(t, zip.FileHeader{Name: "../evil"}), "not a clean path"},
		"a zip with a link":             {"zip", zipped(t, linkInZip()), "only files and folders"},
		"a zip that is none":            {"zip", []byte("<html>"), "no zip archive"},
		"a zip that ends early":         {"zip", zipped(t)[:60], "no zip archive"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newModuleRegistry(t)
			r.files["/x."+tc.format] = tc.content
			h.commit("calls", map[string]string{"main.tf": "module \"m\" { source = \"http://" + r.host + "/x." + tc.format + "\" }\n"})
			res, log, err := h.run(t, h.spec("calls", "main", terraformSource(".")))
			if tc.says == "" {
				if err != nil {
					t.Errorf("%v\n%s", err, log)
				}
				return
			}
			if plugin.ReasonOf(err) != fairlead.ReasonSourceInvalid || !strings.Contains(err.Error(), tc.says) || res.Built != nil {
				t.Errorf("%+v, %v (%s)\n%s", res.Built, err, plugin.ReasonOf(err), log)
			}
		})
	}
}

func digestOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

func plainTar(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o664
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarred(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	return gzipped(t, plainTar(t, entries...))
}

// zipped returns a zip with the file main.tf and empty entries.
func zipped(t *testing.T, more ...zip.FileHeader) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("main.tf")
	if err == nil {
		_, err = fmt.Fprintf(f, output, "zip")
	}
	for _, h := range more {
		if err == nil {
			_, err = w.CreateHeader(&h)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func linkInZip() zip.FileHeader {
	h := zip.FileHeader{Name: "link"}
	h.SetMode(fs.ModeSymlink | 0o777)
	return h
}
