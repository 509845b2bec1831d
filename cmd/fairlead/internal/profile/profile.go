// Package profile chooses the control plane that the CLI calls, and the token. Flags
// override the environment. The environment overrides the configuration file, which
// `fairlead login` and `fairlead dev` write. The CLI never sends a token that was stored
// for one control plane to another control plane.
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
	EnvKeyFile   = "FAIRLEAD_KEY_FILE"
	// EnvOIDCTokenFile names the file with the token of the platform, as for an agent.
	EnvOIDCTokenFile = "FAIRLEAD_OIDC_TOKEN_FILE"
)

// maxToken is the size of the longest token, in bytes. A larger file is not a token.
const maxToken = 16 << 10

// Target is a control plane with the settings to call it. Token is "" if none is known.
type Target struct {
	URL    string
	Token  string
	CAFile string // file of the authorities that sign its certificate; "": the authorities that the machine trusts
	Plain  bool   // permits calls without TLS to another machine
}

// Flags are the global flags; "" means not given.
type Flags struct {
	URL       string
	TokenFile string
	CAFile    string
	Plain     bool
}

// Reach returns t with CAFile and Plain from the flags and the environment. If they do
// not set a value and s has the same URL, Reach takes the value of s.
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

// Resolve returns the control plane to call. If no URL is set, the error is of
// fairlead.KindUnauthenticated with the code "not-logged-in". Other errors are of
// fairlead.KindInvalid.
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
			Hint:    "Name a file that contains only the token.",
		}
	}
	defer f.Close()
	return ReadToken(f, name)
}

// ReadToken reads a token, which must be the only content of r. Errors contain name,
// the source of the token, but never its content.
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
			Message: fmt.Sprintf("%s does not contain a valid token: it %s", from, why),
			Hint:    "Name a file that contains only the token.",
		}
	}
	switch {
	case token == "":
		return "", bad("is empty")
	case len(token) > maxToken:
		return "", bad(fmt.Sprintf("is longer than %d bytes", maxToken))
	}
	for _, r := range token {
		if r <= ' ' || r > '~' { // not permitted in an HTTP header
			return "", bad("contains white space or other characters that a token cannot have")
		}
	}
	return token, nil
}

// KeyFile returns the file with the seed that opens encrypted values of the control plane at url; "" if none is known. The
// parameter flag is the file that the command names; "": none.
func KeyFile(flag string, getenv func(string) string, url string) (string, error) {
	if file := cmp.Or(flag, getenv(EnvKeyFile)); file != "" {
		return file, nil
	}
	stored, err := Load(getenv)
	if err != nil || !sameURL(url, stored.URL) {
		return "", err
	}
	return stored.KeyFile, nil
}

// Stored is the content of the configuration file. It has either a token or the path of
// a token file.
type Stored struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	CAFile    string `json:"ca_file,omitempty"`
	Plain     bool   `json:"allow_plain_http,omitempty"`
	KeyFile   string `json:"key_file,omitempty"` // the seed of the runner beside the control plane, which `fairlead dev` starts
}

// Path returns the path of the configuration file.
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

// Load reads the configuration file. If there is none, Load returns the zero Stored.
func Load(getenv func(string) string) (Stored, error) {
	path, err := Path(getenv)
	if err != nil {
		return Stored{}, nil // no home folder, so there is no login; CI systems may have none
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
			Message: fmt.Sprintf("the login in %s is not valid", path),
			Hint:    "Log in again with `fairlead login URL --token-file FILE`.",
		}
	}
	return s, nil
}

// Save writes the configuration file and returns its path. Only its owner can read it.
// Save replaces the file atomically.
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

// cause returns the error of a file operation without the operation and the path.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
