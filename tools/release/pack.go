package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packed is a file of an archive.
type packed struct {
	path  string // with slashes
	mode  int64
	local string // path on this machine of the content
	data  []byte // the content, instead of local
}

// pack writes an archive, which is compressed unless its name ends with .tar. The same files give the same archive: they are in the order of their paths, and have
// no owner and the time 0.
func pack(target string, files []packed) (err error) {
	slices.SortFunc(files, func(a, b packed) int { return strings.Compare(a.path, b.path) })
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if filepath.Ext(target) == ".tar" {
		return write(out, files)
	}
	zipped, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(write(zipped, files), zipped.Close())
}

func write(out io.Writer, files []packed) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		if err := add(w, f); err != nil {
			return fmt.Errorf("pack %s: %w", f.path, err)
		}
	}
	return w.Close()
}

func add(w *tar.Writer, f packed) error {
	h := tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if f.data != nil {
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(f.data)
		return err
	}
	in, err := os.Open(f.local)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // opened for reading
	info, err := in.Stat()
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// packFolder writes an archive of the files below a folder.
func packFolder(target, folder string) error {
	var files []packed
	err := filepath.WalkDir(folder, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(folder, file)
		files = append(files, packed{path: filepath.ToSlash(below), mode: 0o644, local: file})
		return err
	})
	if err != nil {
		return err
	}
	return pack(target, files)
}
