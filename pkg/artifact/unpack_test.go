package artifact_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// entry is a tar entry that an attacker could write.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func makeTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestUnpackRefusesHostileArchives(t *testing.T) {
	limits := artifact.Limits{Entries: 20, Bytes: 1000, FileBytes: 600, Depth: 4, PathBytes: 300}
	many := func(n int, kind byte) (es []entry) {
		for i := range n {
			e := file("f"+strings.Repeat("x", i), "")
			e.Typeflag = kind
			es = append(es, e)
		}
		return es
	}
	setuid := file("x", "")
	setuid.Mode = 0o4755
	whole := makeTar(t, file("a.tf", strings.Repeat("a", 512)), file("b.tf", "b"))
	zipped := func(content []byte) []byte {
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}

	tests := []struct {
		name    string
		archive []byte
		code    fairlead.Code
	}{
		{"path to the outside", makeTar(t, file("../outside", "x")), "artifact-invalid"},
		{"path to the outside after a missing folder (zip slip, CVE-2025-0377)", makeTar(t, file("absent/../../outside", "x")), "artifact-invalid"},
		{"path with .. that stays inside", makeTar(t, file("a/../b", "x")), "artifact-invalid"},
		{"absolute path", makeTar(t, file("/outside", "x")), "artifact-invalid"},
		{"folder outside", makeTar(t, entry{tar.Header{Typeflag: tar.TypeDir, Name: "../outside/", Mode: 0o755}, ""}), "artifact-invalid"},
		{"path with backslashes", makeTar(t, file(`..\outside`, "x")), "artifact-name"},
		{"dot segments", makeTar(t, file("./a", "x")), "artifact-invalid"},
		{"empty segments", makeTar(t, file("a//b", "x")), "artifact-invalid"},
		{"the top folder itself", makeTar(t, entry{tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, ""}), "artifact-invalid"},
		{"link to the outside", makeTar(t, link(tar.TypeSymlink, "x", "../..")), "artifact-invalid"},
		{"link inside", makeTar(t, file("a", ""), link(tar.TypeSymlink, "x", "a")), "artifact-invalid"},
		{"file through a chain of links (CVE-2020-29529)", makeTar(t,
			link(tar.TypeSymlink, "a", "."), link(tar.TypeSymlink, "a/b", ".."), file("a/b/outside", "x")), "artifact-invalid"},
		{"hard link to a file outside", makeTar(t, link(tar.TypeLink, "x", "/etc/passwd")), "artifact-invalid"},
		{"character device", makeTar(t, link(tar.TypeChar, "x", "")), "artifact-invalid"},
		{"block device", makeTar(t, link(tar.TypeBlock, "x", "")), "artifact-invalid"},
		{"named pipe", makeTar(t, link(tar.TypeFifo, "x", "")), "artifact-invalid"},
		{"unknown type", makeTar(t, link('Z', "x", "")), "artifact-invalid"},
		{"global header that renames the next file", makeTar(t, entry{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g",
			PAXRecords: map[string]string{"path": "../outside"}}, ""}, file("a", "x")), "artifact-invalid"},
		{"old sparse file", sparseTar(t), "artifact-invalid"},
		{"set-user-id", makeTar(t, setuid), "artifact-invalid"},
		{"same file twice", makeTar(t, file("a", "1"), file("a", "2")), "artifact-invalid"},
		{"file names that differ only in case", makeTar(t, file("a", "1"), file("A", "2")), "artifact-invalid"},
		{"folder names that differ only in case", makeTar(t, file("d/a", "1"), file("D/b", "2")), "artifact-invalid"},
		{"folder in place of a file", makeTar(t, file("a", "1"), file("a/b", "2")), "artifact-invalid"},
		{"file in place of a folder", makeTar(t, file("a/b", "1"), file("a", "2")), "artifact-invalid"},
		{"folder after a file of the same name", makeTar(t, file("a", "1"), entry{tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o755}, ""}), "artifact-invalid"},
		{"too many files", makeTar(t, many(21, tar.TypeReg)...), "artifact-too-many-entries"},
		{"too many folders", makeTar(t, many(21, tar.TypeDir)...), "artifact-too-many-entries"},
		{"same folder too many times", makeTar(t, sameDir(21)...), "artifact-too-many-entries"},
		{"file that is too large", makeTar(t, file("a", strings.Repeat("x", 601))), "artifact-file-too-large"},
		{"files that are too large in total", makeTar(t, file("a", strings.Repeat("x", 600)), file("b", strings.Repeat("x", 600))), "artifact-too-large"},
		{"folder that is too deep", makeTar(t, file("a/b/c/d/e", "")), "artifact-too-deep"},
		{"path that is too long", makeTar(t, file(strings.Repeat("a/", 150)+"b", "")), "artifact-path-too-long"},
		{"name that is too long", makeTar(t, file(strings.Repeat("n", 256), "")), "artifact-path-too-long"},
		{"control characters in a name", makeTar(t, file("\x1b[2J", "")), "artifact-name"},
		{"file shorter than its header says", whole[:600], "artifact-invalid"},
		{"truncated in a header", whole[:1024+100], "artifact-invalid"},
		{"truncated between two files", whole[:1024], "artifact-invalid"},
		{"without an end mark", whole[:len(whole)-1024], "artifact-invalid"},
		{"data after the end", append(bytes.Clone(whole), "hidden"...), "artifact-invalid"},
		{"empty", nil, "artifact-invalid"},
		{"garbage", bytes.Repeat([]byte("garbage "), 200), "artifact-invalid"},
		{"compressed", zipped(makeTar(t, file("a", strings.Repeat("\x00", 500)))), "artifact-invalid"},
		{"too many zeros", make([]byte, 200_000), "artifact-invalid"},
		{"huge extended header", paxBomb(), "artifact-invalid"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parent := t.TempDir()
			dst := filepath.Join(parent, "a", "dst")
			if err := os.MkdirAll(dst, 0o755); err != nil {
				t.Fatal(err)
			}
			err := artifact.Unpack(bytes.NewReader(test.archive), openRoot(t, dst), limits)
			wantCode(t, err, fairlead.KindInvalid, test.code)
			checkConfined(t, parent, dst)
		})
	}
}

// checkConfined checks that dst has only files and folders, and that nothing else was
// written.
func checkConfined(t testing.TB, parent, dst string) {
	t.Helper()
	err := filepath.WalkDir(parent, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside := strings.HasPrefix(name, dst+string(filepath.Separator))
		above := strings.HasPrefix(dst, name)
		if !inside && !above {
			t.Errorf("%s was written outside the folder", name)
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			t.Errorf("%s is a %s", name, e.Type())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sameDir(n int) (es []entry) {
	for range n {
		es = append(es, entry{tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, ""})
	}
	return es
}

// sparseTar returns a tar with a sparse file. Its sparse map claims a megabyte, but the tar
// contains only one block of the file.
func sparseTar(t testing.TB) []byte {
	t.Helper()
	records := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n" + "26 GNU.sparse.name=sparse\n" + "30 GNU.sparse.realsize=000500\n"
	content := "1\n0\n1\n" + strings.Repeat("\x00", 512-6) + "x"
	archive := makeTar(t, file("PaxHeaders.0/x", records), file("x", content))
	archive[156] = tar.TypeXHeader // makeTar cannot write such an entry
	fixChecksum(archive[:512])
	return archive
}

// paxBomb returns an extended header that claims a size of a gigabyte.
func paxBomb() []byte {
	block := make([]byte, 512)
	copy(block, "x")
	copy(block[100:], "0000644\x00")
	copy(block[124:], "10000000000\x00")
	copy(block[136:], "00000000000\x00")
	block[156] = tar.TypeXHeader
	copy(block[257:], "ustar\x0000")
	fixChecksum(block)
	return append(block, make([]byte, 150_000)...)
}

func fixChecksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	digits := []byte("000000\x00 ")
	for i := 5; i >= 0; i-- {
		digits[i] = byte('0' + sum%8)
		sum /= 8
	}
	copy(block[148:156], digits)
}

func TestUnpackReplacesNothing(t *testing.T) {
	dir := writeTree(t, map[string]string{"main.tf": "mine"})
	err := artifact.Unpack(bytes.NewReader(makeTar(t, file("main.tf", "theirs"))), openRoot(t, dir), artifact.Limits{})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want fs.ErrExist", err)
	}
	if got := readTree(t, dir)["main.tf"]; got != "mine" {
		t.Errorf("the file has %q", got)
	}
}

func TestUnpackDoesNotFollowALinkToOutside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	symlink(t, outside, filepath.Join(dir, "modules"))
	err := artifact.Unpack(bytes.NewReader(makeTar(t, file("modules/x", "x"))), openRoot(t, dir), artifact.Limits{})
	if err == nil {
		t.Error("no error for a folder that is a link to the outside")
	}
	if found := readTree(t, outside); len(found) != 0 {
		t.Errorf("files outside: %v", found)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(makeTar(f, file("main.tf", "x"), file("modules/a/main.tf", "y")))
	f.Add(makeTar(f, file("../x", "x")))
	f.Add(makeTar(f, link(tar.TypeSymlink, "a", ".."), file("a/b", "x")))
	f.Add(makeTar(f, file(strings.Repeat("long/", 40)+"ü", "x")))
	f.Add(sparseTar(f))
	f.Add(paxBomb())
	limits := artifact.Limits{Entries: 50, Bytes: 1 << 16, FileBytes: 1 << 15, Depth: 8, PathBytes: 256}
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		dst := filepath.Join(parent, "dst")
		if err := os.Mkdir(dst, 0o755); err != nil {
			t.Fatal(err)
		}
		err := artifact.Unpack(bytes.NewReader(archive), openRoot(t, dst), limits)
		checkConfined(t, parent, dst)
		if err != nil {
			return
		}
		// The unpacked files must be within the limits.
		found := readTree(t, dst)
		if len(found) == 0 {
			return
		}
		total := 0
		for _, content := range found {
			total += len(content)
		}
		if total > int(limits.Bytes) || len(found) > limits.Entries {
			t.Errorf("%d files with %d bytes exceed the limits", len(found), total)
		}
	})
}
