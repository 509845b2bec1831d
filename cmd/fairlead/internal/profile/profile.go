// Package profile decides which control plane the CLI talks to, and with which
// token. Flags win over the environment, the environment over the file that
// `fairlead login` and `fairlead dev` write. A token that was stored for one
// control plane is never sent to another.
package profile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/transport"
)

// The environment variables that are read.
const (
	EnvURL       = "FAIRLEAD_URL"
	EnvToken     = "FAIRLEAD_TOKEN"
	EnvTokenFile = "FAIRLEAD_TOKEN_FILE"
	EnvConfigDir = "FAIRLEAD_CONFIG_DIR"
	EnvCAFile    = "FAIRLEAD_CA_FILE"
	EnvPlainHTTP = "FAIRLEAD_ALLOW_PLAIN_HTTP"
)

// maxToken is the longest token that is read, in bytes: a longer one is some
// other file.
const maxToken = 16 << 10

// Target is a control plane and what is needed to call it. Token is "" when
// none is known.
type Target struct {
	URL    string
	Token  string
	CAFile string // of the certificates that its own is signed by; "": those that the machine trusts
	Plain  bool   // it may be called without TLS on another machine
}

// Flags are the global flags; "" means not given.
type Flags struct {
	URL       string
	TokenFile string
	CAFile    string
	Plain     bool
}

// Reach returns how the flags and the environment say that a control plane is
// reached, by what was stored for its URL where they do not.
func Reach(f Flags, getenv func(string) string, t Target, s Stored) (Target, error) {
	t.CAFile = cmp.Or(f.CAFile, getenv(EnvCAFile))
	t.Plain = f.Plain
	if text := getenv(EnvPlainHTTP); text != "" && !t.Plain {
		var err error
		if t.Plain, err = strconv.ParseBool(text); err != nil {
			return t, &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeUsage, Message: fmt.Sprintf("$%s is %q, which is neither true nor false", EnvPlainHTTP, text)}
		}
	}
	if sameURL(t.URL, s.URL) {
		t.CAFile, t.Plain = cmp.Or(t.CAFile, s.CAFile), t.Plain || s.Plain
	}
	return t, nil
}

// Resolve returns the control plane to call. The error is of
// fairlead.KindInvalid, or fairlead.KindUnauthenticated with the code
// "not-logged-in" when nothing says where the control plane is.
func Resolve(f Flags, getenv func(string) string) (Target, error) {
	stored, err := Load(getenv)
	if err != nil {
		return Target{}, err
	}
	t := Target{URL: f.URL}
	if t.URL == "" {
		t.URL = getenv(EnvURL)
	}
	if t.URL == "" {
		t.URL = stored.URL
	}
	if t.URL == "" {
		return Target{}, &fairlead.Error{
			Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeNotLoggedIn,
			Message: "no control plane is known",
			Hint:    "Start one with `fairlead dev`, or log in to one with `fairlead login URL --token-file FILE`.",
		}
	}
	switch {
	case f.TokenFile != "":
		t.Token, err = readTokenFile(f.TokenFile)
	case getenv(EnvToken) != "":
		t.Token, err = checkToken("$"+EnvToken, getenv(EnvToken))
	case getenv(EnvTokenFile) != "":
		t.Token, err = readTokenFile(getenv(EnvTokenFile))
	case sameURL(t.URL, stored.URL) && stored.TokenFile != "":
		t.Token, err = readTokenFile(stored.TokenFile)
	case sameURL(t.URL, stored.URL):
		t.Token = stored.Token
	}
	if err != nil {
		return t, err
	}
	return Reach(f, getenv, t, stored)
}

func sameURL(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

func readTokenFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeTokenFile,
			Message: fmt.Sprintf("the token file %s cannot be read: %v", name, cause(err)),
			Hint:    "Name a file that holds nothing but the token.",
		}
	}
	defer f.Close()
	return ReadToken(f, name)
}

// ReadToken reads a token, as the only content of r. Name says where it comes
// from; errors never quote the content.
func ReadToken(r io.Reader, name string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("read the token from %s: %w", name, err)
	}
	return checkToken(name, string(data))
}

func checkToken(from, text string) (string, error) {
	token := strings.TrimSpace(text)
	bad := func(why string) error {
		return &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeTokenFile,
			Message: fmt.Sprintf("%s does not hold a token: it %s", from, why),
			Hint:    "Name a file that holds nothing but the token.",
		}
	}
	switch {
	case token == "":
		return "", bad("is empty")
	case len(token) > maxToken:
		return "", bad(fmt.Sprintf("is longer than %d bytes", maxToken))
	}
	for _, r := range token {
		if r <= ' ' || r > '~' { // what may stand in a header
			return "", bad("has white space or other characters that no token has")
		}
	}
	return token, nil
}

// Stored is the content of the configuration file. It has either a token or
// the path of a file that holds it.
type Stored struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	CAFile    string `json:"ca_file,omitempty"`
	Plain     bool   `json:"allow_plain_http,omitempty"`
}

// Path returns where the configuration file is.
func Path(getenv func(string) string) (string, error) {
	if dir := getenv(EnvConfigDir); dir != "" {
		return filepath.Join(dir, "config.json"), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder (set %s): %w", EnvConfigDir, err)
	}
	return filepath.Join(dir, "fairlead", "config.json"), nil
}

// Load reads the configuration file. Without one, the zero Stored is returned.
func Load(getenv func(string) string) (Stored, error) {
	path, err := Path(getenv)
	if err != nil {
		return Stored{}, nil // no home: nothing can be stored, which is fine for robots
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Stored{}, nil
	}
	if err != nil {
		return Stored{}, fmt.Errorf("read the login: %w", err)
	}
	var s Stored
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Stored{}, &fairlead.Error{
			Kind: fairlead.KindInvalid, Code: fairlead.CodeBadLogin,
			Message: fmt.Sprintf("the login in %s cannot be understood", path),
			Hint:    "Log in again with `fairlead login URL --token-file FILE`.",
		}
	}
	return s, nil
}

// Save writes the configuration file, readable by its owner only, and returns
// its path. A reader sees the old content or the new, never a part.
func Save(getenv func(string) string, s Stored) (string, error) {
	path, err := Path(getenv)
	if err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the login: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("store the login: %w", err)
	}
	if err := safefile.Write(path, append(data, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("store the login: %w", err)
	}
	return path, nil
}

// OnThisMachine reports whether the URL's host is a loopback address.
func OnThisMachine(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && transport.IsLoopback(u.Hostname())
}

// cause strips the operation and path from a file's error.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
