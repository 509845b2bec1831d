// Package selfcopy copies the running program to a folder that another container runs it from.
package selfcopy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The names of the files in the folder.
const (
	Program = "runner"
	Roots   = "roots.pem" // the certificate authorities that the program trusts; empty if it has none
)

// RootsInImage is the path of the certificate authorities in the runner's image.
const RootsInImage = "/etc/ssl/certs/ca-certificates.crt"

// To copies this program, and the certificate authorities that it trusts, to the folder.
func To(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := file(self, filepath.Join(folder, Program), 0o555); err != nil {
		return err
	}
	err = file(cmp.Or(os.Getenv("SSL_CERT_FILE"), RootsInImage), filepath.Join(folder, Roots), 0o444)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(filepath.Join(folder, Roots), nil, 0o444)
	}
	return err
}

func file(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy a file: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Chmod(mode), out.Close()); err != nil { // the mode of a new file depends on the umask
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return nil
}
