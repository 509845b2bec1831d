package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
)

// The limits of a chart, with all its subcharts.
const (
	maxChartFiles = 10_000
	maxChartBytes = 64 << 20 // unpacked
	maxChartFile  = 16 << 20
	maxChartDepth = 8 // packed charts within packed charts
)

// Chart is a loaded chart.
type Chart struct {
	files  []*archive.BufferedFile
	digest string
}

// Load reads a chart from a folder or from a .tgz file. It writes nothing to disk and follows no symbolic link. It refuses an
// archive with a path outside the chart, with a link or a device, or above the limits. Packed subcharts count for the same
// limits. Its errors have the reasons chart-invalid and chart-incomplete.
func Load(name string) (*Chart, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, invalid("read the chart: %w", err)
	}
	b := budget{}
	var files []*archive.BufferedFile
	switch {
	case info.IsDir():
		files, err = b.folder(name)
	case info.Mode().IsRegular():
		var f *os.File
		if f, err = os.Open(name); err == nil {
			files, err = b.archive(f, 0)
			f.Close()
		}
	default:
		err = fmt.Errorf("it is neither a folder nor a regular file")
	}
	if err != nil {
		return nil, invalid("read the chart %s: %w", path.Base(name), err)
	}
	c := &Chart{files: files, digest: digestOf(files)}
	loaded, err := c.load()
	if err != nil {
		return nil, invalid("read the chart %s: %w", path.Base(name), err)
	}
	if t := loaded.Metadata.Type; t != "" && t != "application" {
		return nil, invalid("the chart %s has the type %s, and only charts of the type application can be installed", loaded.Name(), t)
	}
	deps := make([]chart.Dependency, 0, len(loaded.Metadata.Dependencies))
	for _, d := range loaded.Metadata.Dependencies {
		deps = append(deps, d)
	}
	if err := action.CheckDependencies(loaded, deps); err != nil {
		return nil, &plugin.Error{Reason: fairlead.ReasonChartIncomplete, Err: err, Message: fmt.Sprintf(
			"The chart %s lacks subcharts: %v. Run `helm dependency build` in the chart's folder, and publish the app again.", loaded.Name(), err)}
	}
	return c, nil
}

// load parses the files again, because Helm changes a chart while it processes its dependencies.
func (c *Chart) load() (*chartv2.Chart, error) {
	files := make([]*archive.BufferedFile, len(c.files))
	for i, f := range c.files {
		copied := *f
		files[i] = &copied
	}
	return loader.LoadFiles(files)
}

func invalid(format string, args ...any) *plugin.Error {
	err := fmt.Errorf(format, args...)
	return &plugin.Error{Reason: fairlead.ReasonChartInvalid, Message: sentence(err.Error()) + " Correct the chart, and publish the app again.", Err: err}
}

func digestOf(files []*archive.BufferedFile) string {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b *archive.BufferedFile) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	for _, f := range sorted {
		fmt.Fprintf(h, "%d %s %d\n", len(f.Name), f.Name, len(f.Data))
		h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// budget counts the files and bytes of a chart and of the subcharts that are packed in it.
type budget struct {
	files int
	bytes int64
}

// read reads one file within the budget.
func (b *budget) read(name string, r io.Reader) ([]byte, error) {
	if b.files++; b.files > maxChartFiles {
		return nil, fmt.Errorf("it has more than %d files", maxChartFiles)
	}
	limit := min(maxChartFile, maxChartBytes-b.bytes)
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("file %s exceeds the limit of %d MiB for a file, or of %d MiB for the unpacked chart", name, maxChartFile>>20, maxChartBytes>>20)
	}
	b.bytes += int64(len(data))
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), nil
}

// folder reads the files of a folder, without those that its .helmignore excludes.
func (b *budget) folder(name string) ([]*archive.BufferedFile, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	rules := ignore.Empty()
	if info, err := root.Lstat(ignore.HelmIgnore); err == nil && info.Mode().IsRegular() {
		f, err := root.Open(ignore.HelmIgnore)
		if err != nil {
			return nil, err
		}
		rules, err = ignore.Parse(io.LimitReader(f, 1<<20))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ignore.HelmIgnore, err)
		}
	}
	rules.AddDefaults()
	var files []*archive.BufferedFile
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case rules.Ignore(name, info) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || rules.Ignore(name, info):
			return nil
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is a link or a device, and a chart may have only folders and regular files", name)
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		// A link may have replaced the file since the folder was listed.
		if opened, err := f.Stat(); err != nil || !os.SameFile(opened, info) {
			return fmt.Errorf("%s changed while it was read", name)
		}
		read, err := b.file(name, f, 0)
		files = append(files, read...)
		return err
	})
	return files, errors.Join(err, unique(files))
}

// archive reads a packed chart, and returns its files without the archive's top folder.
func (b *budget) archive(r io.Reader, depth int) ([]*archive.BufferedFile, error) {
	if depth > maxChartDepth {
		return nil, fmt.Errorf("subcharts are packed more than %d deep", maxChartDepth)
	}
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("it is not a gzip file: %w", err)
	}
	// The limit also bounds what is skipped: headers, padding, and the content of entries that are no files.
	tr := tar.NewReader(io.LimitReader(unzipped, 2*maxChartBytes))
	var files []*archive.BufferedFile
	top := ""
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if entries > 2*maxChartFiles {
			return nil, fmt.Errorf("it has more than %d entries", 2*maxChartFiles)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader, tar.TypeDir:
			continue
		case tar.TypeReg:
		default:
			return nil, fmt.Errorf("%q is a link or a device, and a chart may have only folders and regular files", h.Name)
		}
		name := strings.TrimPrefix(h.Name, "./")
		folder, rest, ok := strings.Cut(name, "/")
		if !ok || !fs.ValidPath(name) || folder == "." || strings.ContainsAny(name, "\\\x00") || len(rest) > 1 && rest[1] == ':' {
			return nil, fmt.Errorf("%q is not a path below the chart's folder", h.Name)
		}
		if top == "" {
			top = folder
		}
		if folder != top {
			return nil, fmt.Errorf("it has two top folders, %q and %q", top, folder)
		}
		read, err := b.file(rest, tr, depth)
		if err != nil {
			return nil, err
		}
		files = append(files, read...)
	}
	if len(files) == 0 {
		return nil, errors.New("it has no files")
	}
	return files, unique(files)
}

// file reads one file. It unpacks a packed subchart in its place, because Helm would unpack each with a limit of its own.
func (b *budget) file(name string, r io.Reader, depth int) ([]*archive.BufferedFile, error) {
	data, err := b.read(name, r)
	if err != nil {
		return nil, err
	}
	if dir, base := path.Split(name); path.Base(dir) == "charts" && path.Ext(base) == ".tgz" && !strings.HasPrefix(base, "_") && !strings.HasPrefix(base, ".") {
		files, err := b.archive(bytes.NewReader(data), depth+1)
		if err != nil {
			return nil, fmt.Errorf("subchart %s: %w", name, err)
		}
		for _, f := range files {
			f.Name = path.Join(dir, strings.TrimSuffix(base, ".tgz"), f.Name)
		}
		return files, nil
	}
	return []*archive.BufferedFile{{Name: name, Data: data}}, nil
}

func unique(files []*archive.BufferedFile) error {
	seen := map[string]bool{}
	for _, f := range files {
		if seen[f.Name] {
			return fmt.Errorf("it has %s twice", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}
