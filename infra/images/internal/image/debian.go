package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/fairlead/fairlead/infra/images/internal/debian"
)

// pinned lists the packages of the image with a shell: one for each line, with
// architecture, path in the archive and SHA-256. Repin writes it.
//
//go:embed packages.txt
var pinned string

// wanted are the packages that people use in the image with a shell. Their dependencies
// follow from Debian's index.
var wanted = []string{"dash", "bash", "coreutils", "grep", "sed", "findutils", "mawk", "tar", "gzip", "git"}

// unneeded are dependencies that the image does without: for git's commands in Perl, for
// its manual pages, and for scripts that Debian runs at an installation.
var unneeded = []string{"perl", "liberror-perl", "git-man", "debianutils", "base-files", "install-info", "debconf", "debconf-2.0"}

// archives returns the addresses that serve Debian's packages, in the order of their use. The snapshot also has those that
// the archive has replaced.
func archives() []string {
	return []string{"https://deb.debian.org/debian/", "https://deb.debian.org/debian-security/", "https://snapshot.debian.org/archive/debian/" + snapshot, "https://snapshot.debian.org/archive/debian-security/" + snapshot}
}

const (
	suite    = "trixie"
	snapshot = "20261125T000000Z/"
)

const (
	downloadFor = 5 * time.Minute // of one package
	maxPackage  = 64 << 20
)

// Repin writes the newest packages of the suite, with their dependencies, to the file.
func Repin(ctx context.Context, file string) error {
	var lines []string
	for _, arch := range []string{"amd64", "arm64"} {
		index := debian.Index{}
		for _, part := range []string{"debian/dists/" + suite, "debian-security/dists/" + suite + "-security"} {
			b, err := get(ctx, "https://deb.debian.org/"+part+"/main/binary-"+arch+"/Packages.xz")
			if err != nil {
				return err
			}
			r, err := xz.NewReader(bytes.NewReader(b))
			if err == nil {
				err = index.Add(r)
			}
			if err != nil {
				return fmt.Errorf("read the index of %s: %w", part, err)
			}
		}
		packages, err := index.Closure(wanted, unneeded)
		if err != nil {
			return err
		}
		for _, p := range packages {
			lines = append(lines, arch+" "+p.Filename+" "+p.SHA256)
		}
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// Shell returns a layer with a POSIX shell, the usual commands and git, from Debian's packages
// for arch. It keeps downloaded packages in the folder cache. Each is checked against the
// pinned digest.
func Shell(ctx context.Context, arch, cache string) (Layer, error) {
	l := Layer{What: "shell, commands and git from Debian " + suite}
	made := map[string]int{}
	put := func(e Entry) {
		if at, ok := made[e.Path]; ok {
			if !strings.HasSuffix(e.Path, "/") {
				l.Entries[at] = e
			}
			return
		}
		made[e.Path] = len(l.Entries)
		l.Entries = append(l.Entries, e)
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		put(Entry{Path: "/usr/" + dir + "/", Mode: 0o755})
		put(Entry{Path: "/" + dir, Link: "usr/" + dir})
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return l, err
	}
	n := 0
	for line := range strings.Lines(pinned) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != arch {
			continue
		}
		n++
		b, err := fetch(ctx, archives(), cache, f[1], f[2])
		if err != nil {
			return l, err
		}
		if err := unpack(b, put); err != nil {
			return l, fmt.Errorf("unpack %s: %w", f[1], err)
		}
	}
	if n == 0 {
		return l, fmt.Errorf("no package is pinned for %s", arch)
	}
	put(Entry{Path: "/usr/bin/awk", Link: "mawk"}) // Debian makes it at the installation
	return l, nil
}

// fetch returns a package, from the cache or from the first archive that has it with the digest sum.
func fetch(ctx context.Context, archives []string, cache, name, sum string) ([]byte, error) {
	file := filepath.Join(cache, sum)
	right := func(b []byte) bool {
		got := sha256.Sum256(b)
		return hex.EncodeToString(got[:]) == sum
	}
	if b, err := os.ReadFile(file); err == nil && right(b) {
		return b, nil
	}
	var errs []error
	for _, archive := range archives {
		b, err := get(ctx, archive+name)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case !right(b):
			errs = append(errs, fmt.Errorf("%s%s has another digest than the pinned %s", archive, name, sum))
			continue
		}
		part := file + "." + strconv.Itoa(os.Getpid())
		return b, errors.Join(os.WriteFile(part, b, 0o644), os.Rename(part, file))
	}
	return nil, fmt.Errorf("download the package %s: %w", path.Base(name), errors.Join(errs...))
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, downloadFor)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // opened for reading
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPackage))
}

// unpack passes the files of a package to put: without manuals, translations and rights of
// other users, but with the licenses.
func unpack(deb []byte, put func(Entry)) error {
	data, err := member(deb, "data.tar.xz")
	if err != nil {
		return err
	}
	unzipped, err := xz.NewReader(bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return err
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := merged(path.Join("/", h.Name))
		if to == "/" || omitted(to) {
			continue
		}
		e := Entry{Path: to, Mode: h.Mode & 0o755}
		switch h.Typeflag {
		case tar.TypeDir:
			e.Path += "/"
		case tar.TypeSymlink:
			e.Link = h.Linkname
		case tar.TypeLink:
			from, err := filepath.Rel(path.Dir(to), merged(path.Join("/", h.Linkname)))
			if err != nil {
				return err
			}
			e.Link = from
		case tar.TypeReg:
			if e.Data, err = io.ReadAll(r); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither file, folder nor link", h.Name)
		}
		put(e)
	}
}

// merged returns the path below /usr of a path in one of the folders that are links to /usr.
func merged(p string) string {
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return "/usr" + p
		}
	}
	return p
}

func omitted(p string) bool {
	if strings.HasPrefix(p, "/usr/share/doc/") {
		return path.Base(p) != "copyright"
	}
	return slices.ContainsFunc([]string{"/usr/share/man", "/usr/share/info", "/usr/share/locale", "/usr/share/lintian", "/usr/share/bash-completion", "/usr/share/perl5", "/var", "/etc/skel"},
		func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// member returns a member of a package, which is an archive of the format ar: a header of 8 bytes, then members
// with a header of 60 bytes at even offsets.
func member(ar []byte, name string) ([]byte, error) {
	const start, header = 8, 60
	for at := start; at+header <= len(ar); {
		h := ar[at : at+header]
		size, err := strconv.Atoi(strings.TrimSpace(string(h[48:58])))
		if err != nil || size < 0 || at+header+size > len(ar) {
			return nil, errors.New("it is not a package of Debian")
		}
		if strings.TrimRight(string(h[:16]), " /") == name {
			return ar[at+header : at+header+size], nil
		}
		at += header + size + size%2
	}
	return nil, fmt.Errorf("it has no %s", name)
}
