package helm_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/runner/plugin"
)

const metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n"

// entry is an entry of an archive.
type entry struct {
	name, text string
	kind       byte // 0: a regular file
	link       string
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if e.kind != 0 {
			h.Typeflag, h.Linkname, h.Size = e.kind, e.link, 0
			e.text = ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func archiveFile(t testing.TB, data []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "web-1.0.0.tgz")
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestHostileArchivesAreRefused(t *testing.T) {
	ok := entry{name: "web/Chart.yaml", text: metadata}
	zeros := strings.Repeat("\x00", 15<<20)
	nested := pack(t, ok)
	for range 12 {
		nested = pack(t, entry{name: "web/Chart.yaml", text: metadata}, entry{name: "web/charts/web.tgz", text: string(nested)})
	}
	var many []entry
	for i := range 10_001 {
		many = append(many, entry{name: fmt.Sprintf("web/f%d", i)})
	}
	var bombs []entry
	for i := range 5 {
		bombs = append(bombs, entry{name: fmt.Sprintf("web/charts/b%d.tgz", i), text: string(pack(t, entry{name: "b/Chart.yaml", text: metadata}, entry{name: "b/zeros", text: zeros}))})
	}
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"a path to the parent folder":              {pack(t, ok, entry{name: "web/../../etc/x"}), "not a path below"},
		"an absolute path":                         {pack(t, ok, entry{name: "/web/x"}), "not a path below"},
		"a path with a backslash":                  {pack(t, ok, entry{name: `web\..\x`}), "not a path below"},
		"a Windows drive":                          {pack(t, ok, entry{name: "web/c:/x"}), "not a path below"},
		"a file without a folder":                  {pack(t, ok, entry{name: "Chart.yaml"}), "not a path below"},
		"two top folders":                          {pack(t, ok, entry{name: "other/x"}), "two top folders"},
		"a symbolic link to a file of the machine": {pack(t, ok, entry{name: "web/files/x", kind: tar.TypeSymlink, link: "/etc/passwd"}), "link or a device"},
		"a hard link":                              {pack(t, ok, entry{name: "web/files/x", kind: tar.TypeLink, link: "web/Chart.yaml"}), "link or a device"},
		"a device":                                 {pack(t, ok, entry{name: "web/x", kind: tar.TypeChar}), "link or a device"},
		"a file twice":                             {pack(t, ok, ok), "Chart.yaml twice"},
		"a file above the limit":                   {pack(t, ok, entry{name: "web/x", text: zeros + zeros}), "exceeds the limit"},
		"files above the limit together":           {pack(t, ok, entry{name: "web/1", text: zeros}, entry{name: "web/2", text: zeros}, entry{name: "web/3", text: zeros}, entry{name: "web/4", text: zeros}, entry{name: "web/5", text: zeros}), "exceeds the limit"},
		"packed subcharts above the limit":         {pack(t, append(bombs, ok)...), "exceeds the limit"},
		"subcharts packed in subcharts":            {nested, "more than 8 deep"},
		"too many files":                           {pack(t, append(many, ok)...), "more than 10000 files"},
		"no file":                                  {pack(t), "no files"},
		"no archive":                               {[]byte("apiVersion: v2"), "not a gzip file"},
		"a truncated archive":                      {pack(t, ok, entry{name: "web/x", text: zeros})[:200], "unexpected EOF"},
		"no Chart.yaml":                            {pack(t, entry{name: "web/values.yaml"}), "Chart.yaml file is missing"},
		"a name that is a path":                    {pack(t, entry{name: "web/Chart.yaml", text: strings.Replace(metadata, "name: web", "name: ../../x", 1)}), "invalid"},
		"a library":                                {pack(t, entry{name: "web/Chart.yaml", text: metadata + "type: library\n"}), "type library"},
		"YAML that grows": {pack(t, entry{name: "web/Chart.yaml", text: metadata}, entry{name: "web/values.yaml", text: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n"}), "aliasing"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := helm.Load(archiveFile(t, tc.data))
			runtime.ReadMemStats(&after)
			if plugin.ReasonOf(err) != fairlead.ReasonChartInvalid || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if grew := (after.TotalAlloc - before.TotalAlloc) >> 20; grew > 512 {
				t.Errorf("%d MiB were allocated", grew)
			}
		})
	}
}

func TestHostileFoldersAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the machine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(dir string) error{
		"a link to a file":               func(dir string) error { return os.Symlink(secret, filepath.Join(dir, "x")) },
		"a link to a folder":             func(dir string) error { return os.Symlink(filepath.Dir(secret), filepath.Join(dir, "templates")) },
		"a link within the chart":        func(dir string) error { return os.Symlink("Chart.yaml", filepath.Join(dir, "x")) },
		"a link in place of .helmignore": func(dir string) error { return os.Symlink(secret, filepath.Join(dir, ".helmignore")) },
		"a link in place of the chart's data": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "Chart.yaml")); err != nil {
				return err
			}
			return os.Symlink(secret, filepath.Join(dir, "Chart.yaml"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, "1.0.0", files{"values.yaml": ""})
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := helm.Load(dir); plugin.ReasonOf(err) != fairlead.ReasonChartInvalid || !strings.Contains(err.Error(), "link or a device") {
				t.Error(err)
			}
		})
	}
	if _, err := helm.Load(filepath.Join(t.TempDir(), "none")); plugin.ReasonOf(err) != fairlead.ReasonChartInvalid {
		t.Error(err)
	}
}

func TestMissingSubchartsAreNamed(t *testing.T) {
	_, err := helm.Load(folder(t, "1.0.0", files{"Chart.yaml": metadata + "dependencies:\n- {name: postgresql, version: 1.x.x, repository: 'https://x.example'}\n"}))
	if plugin.ReasonOf(err) != fairlead.ReasonChartIncomplete || !strings.Contains(err.Error(), "postgresql") || !strings.Contains(err.Error(), "helm dependency build") {
		t.Error(err)
	}
}

// A folder and its archive are the same chart, also with packed subcharts and ignored files.
func TestFolderAndArchiveRenderTheSame(t *testing.T) {
	sub := pack(t, entry{name: "sub/Chart.yaml", text: "apiVersion: v2\nname: sub\nversion: 1.0.0\n"}, entry{name: "sub/templates/s.yaml", text: configMap("s", "from", "{{ .Chart.Name }}")})
	content := files{"templates/a.yaml": configMap("a", "files", "{{ .Files.Get \"data.txt\" | quote }}"), "data.txt": "text", "charts/sub-1.0.0.tgz": string(sub),
		".helmignore": "secret*\n", "secret.txt": "ignored", "templates/.hidden.yaml": "{{ fail \"ignored\" }}"}
	w := newWorld(t)
	dir := folder(t, "1.0.0", content)
	fromFolder, err := helm.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	packed := []entry{{name: "web/Chart.yaml", text: "apiVersion: v2\nname: web\nversion: 1.0.0\nappVersion: \"app-1.0.0\"\n"}}
	for name, text := range content {
		if !strings.Contains(name, "secret") && !strings.Contains(name, "hidden") {
			packed = append(packed, entry{name: "web/" + name, text: text})
		}
	}
	fromArchive, err := helm.Load(archiveFile(t, pack(t, packed...)))
	if err != nil {
		t.Fatal(err)
	}
	w.deploy(fromFolder, nil)
	if w.configMap("a")["files"] != "text" || w.configMap("s")["from"] != "sub" {
		t.Errorf("%v, %v", w.configMap("a"), w.configMap("s"))
	}
	w.settled(fromArchive, nil)
	if strings.Count(w.log.String(), "Render the chart") != 1 {
		t.Errorf("the archive has another digest than the folder:\n%s", w.log)
	}
}
