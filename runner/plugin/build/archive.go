package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/pkg/artifact"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// archive is an archive that a server returned.
type archive struct {
	what    string // for messages, such as "the chart's archive"
	format  string // tfmodule.FormatZip or tfmodule.FormatTarGz
	content []byte
}

func (a archive) invalid(format string, args ...any) error {
	return plugin.Errorf(fairlead.ReasonSourceInvalid, a.what+" "+format, args...)
}

// unpack writes the files of the archive to the empty folder, as unpackEntries does.
func (a archive) unpack(folder string) error {
	if a.format == tfmodule.FormatZip {
		z, err := zip.NewReader(bytes.NewReader(a.content), int64(len(a.content)))
		if err != nil {
			return a.invalid("is no zip archive")
		}
		return unpackEntries(a.what, folder, func(w *tar.Writer) error { return copyZip(w, z) })
	}
	plain, err := gzip.NewReader(bytes.NewReader(a.content))
	if err != nil {
		return a.invalid("is not compressed by gzip")
	}
	return unpackEntries(a.what, folder, func(w *tar.Writer) error { return copyTar(w, plain) })
}

// unpackEntries writes files to the empty folder. The function entries writes them as a tar. unpackEntries refuses links,
// devices, paths that leave the folder, and more content than an artifact may have. what is for messages.
func unpackEntries(what, folder string, entries func(*tar.Writer) error) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", what, err)
	}
	defer root.Close()
	plain := piped(entries)
	defer plain.Close()
	err = artifact.Unpack(plain, root, artifact.Limits{})
	if e, ok := errors.AsType[*plugin.Error](err); ok { // of the function entries
		return e
	}
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		return &plugin.Error{Reason: fairlead.ReasonSourceInvalid, Message: strings.TrimSpace(what + " cannot be unpacked: " + e.Message + ". " + e.Hint), Err: err}
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", what, err)
	}
	return nil
}

// piped returns the entries as a tar. The caller closes it. The tar is made while it is read, so that the limits of its
// reader end it.
func piped(entries func(*tar.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		err := entries(out)
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err) // nil means EOF
	}()
	return r
}

// copyTar copies the entries. It leaves out what describes the archive, which git adds, and the archive's top, and cleans
// the paths "./NAME" of tars of a folder. Whatever else is wrong with an entry is left to its reader.
func copyTar(w *tar.Writer, plain io.Reader) error {
	r := tar.NewReader(plain)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return checkRest(plain)
		}
		if err != nil {
			return err
		}
		name := h.Name
		for strings.HasPrefix(name, "./") {
			name = strings.TrimPrefix(name, "./")
		}
		if h.Typeflag == tar.TypeXGlobalHeader || h.Typeflag == tar.TypeDir && (name == "" || name == ".") {
			continue
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode & 0o777}
		if err := w.WriteHeader(out); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}

// maxRest is the maximum number of bytes after the last entry of a tar: its end mark, and the padding of its last block.
const maxRest = 1 << 20

// checkRest reads what follows the last entry, at whose end the compression has a checksum.
func checkRest(plain io.Reader) error {
	_, err := atMost(plain, maxRest)
	return err
}

func copyZip(w *tar.Writer, z *zip.Reader) error {
	for _, f := range z.File {
		mode := f.Mode()
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: int64(f.UncompressedSize64), Mode: int64(mode.Perm())}
		switch {
		case mode.IsDir():
			h.Typeflag, h.Size, h.Name = tar.TypeDir, 0, strings.TrimSuffix(f.Name, "/")+"/"
		case !mode.IsRegular():
			h.Typeflag, h.Size = tar.TypeSymlink, 0 // a link or a device: the reader refuses it
		case h.Mode == 0:
			h.Mode = 0o644 // an archive without modes
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		if err = errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// onlyFolder returns the only folder at the top of a folder, for an archive that has one.
func onlyFolder(folder string) (name string, entries int, err error) {
	tops, err := os.ReadDir(folder)
	if err != nil || len(tops) != 1 || !tops[0].IsDir() {
		return "", len(tops), err
	}
	return tops[0].Name(), 1, nil
}

// expand replaces a leading "*" of a folder in what was fetched by its only folder. Registries name the folder of an
// archive so, if they do not know its name.
func expand(fetched, folder string) (string, error) {
	rest, ok := strings.CutPrefix(folder, "*")
	if !ok || rest != "" && rest[0] != '/' {
		return folder, nil
	}
	name, entries, err := onlyFolder(fetched)
	if err != nil {
		return "", fmt.Errorf("list the archive's files: %w", err)
	}
	if name == "" {
		return "", plugin.Errorf(fairlead.ReasonSourceInvalid, "the module's archive has %d files and folders at its top, want one folder", entries)
	}
	return path.Join(name, rest), nil
}

// unpackChart unpacks a chart's archive, whose only top folder is the chart.
func unpackChart(content []byte, workspace, folder string) error {
	a := archive{what: "the chart's archive", format: tfmodule.FormatTarGz, content: content}
	unpacked := filepath.Join(workspace, "chart")
	if err := os.Mkdir(unpacked, 0o700); err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	if err := a.unpack(unpacked); err != nil {
		return err
	}
	name, entries, err := onlyFolder(unpacked)
	if err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	if name == "" {
		return a.invalid("has %d files and folders at its top, want the folder of one chart", entries)
	}
	// Rename replaces no folder.
	if err := errors.Join(os.Remove(folder), os.Rename(filepath.Join(unpacked, name), folder)); err != nil {
		return fmt.Errorf("unpack the chart: %w", err)
	}
	return nil
}
