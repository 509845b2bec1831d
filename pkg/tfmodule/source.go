package tfmodule

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// SourceKind is how a module's source is fetched.
type SourceKind string

// The kinds of sources.
const (
	FromPath     SourceKind = "path"     // a folder of the calling module's package
	FromRegistry SourceKind = "registry" // the protocol of module registries
	FromGit      SourceKind = "git"
	FromArchive  SourceKind = "archive" // an archive at a URL
)

// DefaultRegistry is the host of a registry address without a host. The tools have hosts of their own as default; this is
// OpenTofu's.
const DefaultRegistry = "registry.opentofu.org"

// Source is the address of a module, in parts.
type Source struct {
	Kind    SourceKind
	Host    string // of the registry
	Address string // NAMESPACE/NAME/SYSTEM in the registry, or the URL of the repository or archive
	Ref     string // of git; "": the repository's default branch
	Format  string // of the archive: FormatZip or FormatTarGz
	SHA256  string // of the archive, as hexadecimal digits; "": not given
	Folder  string // the module's folder in what is fetched, cleaned; "." is the top. For FromPath: the path
}

// The formats of archives.
const (
	FormatZip   = "zip"
	FormatTarGz = "tar.gz"
)

// Package returns the source without the module's folder: sources with the same Package are fetched once.
func (s Source) Package() Source {
	s.Folder = "."
	return s
}

var (
	registryNames  = pattern.New(`^[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62}[0-9A-Za-z])?/[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62}[0-9A-Za-z])?/[0-9a-z]{1,64}$`)
	registryHost   = pattern.New(`^[0-9A-Za-z](?:[0-9A-Za-z.-]*[0-9A-Za-z])?(?::[0-9]{1,5})?$`)
	gitRef         = pattern.New(`^[0-9A-Za-z][0-9A-Za-z._/+-]{0,199}$`)
	sha256Checksum = pattern.New(`^(?:sha256:)?([0-9a-f]{64})$`)
	otherGetter    = pattern.New(`^([A-Za-z0-9]+)::`)
)

// ParseSource reads a module's source as the tools do. It returns an error for a source of a kind that a build does not fetch.
func ParseSource(text string) (Source, error) {
	if (Call{Source: text}).Local() {
		return Source{Kind: FromPath, Folder: path.Clean(text)}, nil
	}
	address, folder, err := splitFolder(text)
	if err != nil {
		return Source{}, err
	}
	if s, ok := registrySource(address); ok {
		s.Folder = folder
		return s, nil
	}
	if rest, ok := strings.CutPrefix(address, "github.com/"); ok {
		return gitHubSource(rest, folder)
	}
	if m := otherGetter.FindStringSubmatch(address); m != nil {
		address = strings.TrimPrefix(address, m[0])
		if m[1] == "git" {
			return gitSource(address, folder)
		}
		return Source{}, fmt.Errorf("its kind is %s", m[1])
	}
	return archiveSource(address, folder)
}

// splitFolder splits the part after // off, which names a folder.
func splitFolder(text string) (address, folder string, err error) {
	from := 0
	if i := strings.Index(text, "://"); i >= 0 {
		from = i + len("://")
	}
	end := len(text)
	if i := strings.IndexByte(text, '?'); i >= from {
		end = i
	}
	i := strings.Index(text[from:end], "//")
	if i < 0 {
		return text, ".", nil
	}
	folder = path.Clean(text[from+i+2 : end])
	if folder == ".." || strings.HasPrefix(folder, "../") || path.IsAbs(folder) {
		return "", "", errors.New("its folder is outside of what is fetched")
	}
	return text[:from+i] + text[end:], folder, nil
}

func registrySource(address string) (Source, bool) {
	host, names := DefaultRegistry, address
	if strings.Count(address, "/") == 3 {
		host, names, _ = strings.Cut(address, "/")
	}
	// The tools read these hosts as git repositories.
	if host == "github.com" || host == "bitbucket.org" || !registryHost.MatchString(host) || !registryNames.MatchString(names) {
		return Source{}, false
	}
	return Source{Kind: FromRegistry, Host: strings.ToLower(host), Address: names, Folder: "."}, true
}

// gitHubSource reads OWNER/REPOSITORY, after which a folder may follow.
func gitHubSource(rest, folder string) (Source, error) {
	rest, query, hasQuery := strings.Cut(rest, "?")
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return Source{}, errors.New("it names no repository of github.com")
	}
	if len(parts) == 3 {
		folder = path.Join(parts[2], folder)
		if folder == ".." || strings.HasPrefix(folder, "../") {
			return Source{}, errors.New("its folder is outside of what is fetched")
		}
	}
	at := "https://github.com/" + parts[0] + "/" + strings.TrimSuffix(parts[1], ".git") + ".git"
	if hasQuery {
		at += "?" + query
	}
	return gitSource(at, folder)
}

func gitSource(address, folder string) (Source, error) {
	u, query, err := parseURL(address)
	if err != nil {
		return Source{}, err
	}
	ref := query.Get("ref")
	if query.Has("ref") && (!gitRef.MatchString(ref) || strings.Contains(ref, "..")) {
		return Source{}, errors.New("its ref is not a commit, tag or branch")
	}
	query.Del("ref")
	query.Del("depth") // a build fetches no history
	if len(query) > 0 {
		return Source{}, errors.New("it has other parameters than ref and depth")
	}
	return Source{Kind: FromGit, Address: u.String(), Ref: ref, Folder: folder}, nil
}

func archiveSource(address, folder string) (Source, error) {
	u, query, err := parseURL(address)
	if err != nil {
		return Source{}, err
	}
	s := Source{Kind: FromArchive, Folder: folder}
	format := query.Get("archive")
	if format == "" {
		for _, ext := range []string{".zip", ".tar.gz", ".tgz"} {
			if strings.HasSuffix(u.Path, ext) {
				format = ext[1:]
			}
		}
	}
	switch format {
	case FormatZip:
		s.Format = FormatZip
	case FormatTarGz, "tgz":
		s.Format = FormatTarGz
	default:
		return Source{}, errors.New("it is no archive of type zip or tar.gz")
	}
	if sum := query.Get("checksum"); sum != "" {
		m := sha256Checksum.FindStringSubmatch(sum)
		if m == nil {
			return Source{}, errors.New("its checksum is not one of SHA-256")
		}
		s.SHA256 = m[1]
	}
	query.Del("archive")
	query.Del("checksum")
	u.RawQuery = query.Encode()
	s.Address = u.String()
	return s, nil
}

// parseURL returns the URL without its query, and the query.
func parseURL(text string) (*url.URL, url.Values, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || strings.ContainsAny(text, " \t\r\n\\\"'"):
		return nil, nil, errors.New("it is neither a path, nor an address in a registry, nor an https URL")
	case !SafeURL(u):
		return nil, nil, errors.New("it has no https URL")
	case u.User != nil:
		return nil, nil, errors.New("it has a user name or password in its URL")
	case u.Fragment != "":
		return nil, nil, errors.New("it has a fragment in its URL")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("it has an invalid query in its URL")
	}
	u.RawQuery = ""
	return u, query, nil
}

// SafeURL reports whether a build may fetch from the URL: with TLS, or from its own machine.
func SafeURL(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && Loopback(u.Hostname())
}

// Loopback reports whether the host, without a port, is this machine.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
