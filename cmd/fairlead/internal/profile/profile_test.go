package profile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// environment returns a getenv function with these variables and an empty folder for
// the login.
func environment(t *testing.T, vars map[string]string) func(string) string {
	dir := t.TempDir()
	return func(name string) string {
		if name == profile.EnvConfigDir {
			return dir
		}
		return vars[name]
	}
}

func file(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyTheOwnerCanReadTheLogin(t *testing.T) {
	getenv := environment(t, nil)
	if _, err := profile.Save(getenv, profile.Stored{URL: "https://a.example", Token: "old"}); err != nil {
		t.Fatal(err)
	}
	path, err := profile.Save(getenv, profile.Stored{URL: "https://b.example", Token: "new"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v; want only the login", entries, err)
	}
	got, err := profile.Resolve(profile.Flags{}, getenv)
	if want := (profile.Target{URL: "https://b.example", Token: "new"}); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestResolve(t *testing.T) {
	fromFlag, fromEnv, fromLogin := file(t, "flag\n"), file(t, " env-file "), file(t, "login")
	for name, tc := range map[string]struct {
		stored profile.Stored
		env    map[string]string
		flags  profile.Flags
		want   profile.Target
	}{
		"the login is used": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			want:   profile.Target{URL: "http://a", Token: "t"},
		},
		"a login may name a file": {
			stored: profile.Stored{URL: "http://a", TokenFile: fromLogin},
			want:   profile.Target{URL: "http://a", Token: "login"},
		},
		"the stored token is not sent elsewhere": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			env:    map[string]string{profile.EnvURL: "http://b"},
			want:   profile.Target{URL: "http://b"},
		},
		"the stored token is not sent to a URL with the same prefix": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			flags:  profile.Flags{URL: "http://a.evil"},
			want:   profile.Target{URL: "http://a.evil"},
		},
		"a slash at the end is ignored": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			flags:  profile.Flags{URL: "http://a/"},
			want:   profile.Target{URL: "http://a/", Token: "t"},
		},
		"the environment wins over the login": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			env:    map[string]string{profile.EnvToken: "env", profile.EnvTokenFile: fromEnv},
			want:   profile.Target{URL: "http://a", Token: "env"},
		},
		"the environment may name a file": {
			env:  map[string]string{profile.EnvURL: "http://b", profile.EnvTokenFile: fromEnv},
			want: profile.Target{URL: "http://b", Token: "env-file"},
		},
		"flags win over everything": {
			stored: profile.Stored{URL: "http://a", Token: "t"},
			env:    map[string]string{profile.EnvURL: "http://b", profile.EnvToken: "env"},
			flags:  profile.Flags{URL: "http://c", TokenFile: fromFlag},
			want:   profile.Target{URL: "http://c", Token: "flag"},
		},
		"the login's CA file and plain HTTP are used for its URL": {
			stored: profile.Stored{URL: "http://a", Token: "t", CAFile: "ca.pem", Plain: true},
			want:   profile.Target{URL: "http://a", Token: "t", CAFile: "ca.pem", Plain: true},
		},
		"the login's CA file and plain HTTP are not used elsewhere": {
			stored: profile.Stored{URL: "http://a", Token: "t", CAFile: "ca.pem", Plain: true},
			flags:  profile.Flags{URL: "http://b", TokenFile: fromFlag},
			want:   profile.Target{URL: "http://b", Token: "flag"},
		},
		"the environment sets CA file and plain HTTP": {
			env:  map[string]string{profile.EnvURL: "http://b", profile.EnvCAFile: "env.pem", profile.EnvPlainHTTP: "1"},
			want: profile.Target{URL: "http://b", CAFile: "env.pem", Plain: true},
		},
		"flags set CA file and plain HTTP": {
			env:   map[string]string{profile.EnvURL: "http://b", profile.EnvCAFile: "env.pem", profile.EnvPlainHTTP: "false"},
			flags: profile.Flags{CAFile: "flag.pem", Plain: true},
			want:  profile.Target{URL: "http://b", CAFile: "flag.pem", Plain: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := environment(t, tc.env)
			if tc.stored.URL != "" {
				if _, err := profile.Save(getenv, tc.stored); err != nil {
					t.Fatal(err)
				}
			}
			got, err := profile.Resolve(tc.flags, getenv)
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		flags profile.Flags
		login string
		code  fairlead.Code
	}{
		"no control plane is set":      {code: "not-logged-in"},
		"a token file that is missing": {flags: profile.Flags{URL: "http://a", TokenFile: "/nowhere"}, code: "token-file"},
		"an empty token file":          {flags: profile.Flags{URL: "http://a", TokenFile: file(t, "\n")}, code: "token-file"},
		"a letter":                     {flags: profile.Flags{URL: "http://a", TokenFile: file(t, "my secret")}, code: "token-file"},
		"a huge file":                  {flags: profile.Flags{URL: "http://a", TokenFile: file(t, strings.Repeat("x", 1<<20))}, code: "token-file"},
		"two headers":                  {flags: profile.Flags{URL: "http://a", TokenFile: file(t, "a\r\nX-Evil: b")}, code: "token-file"},
		"a login that is not JSON":     {login: "url: http://a", code: "bad-login"},
		"a login of a later version":   {login: `{"url":"http://a","realm":"x"}`, code: "bad-login"},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := environment(t, nil)
			if tc.login != "" {
				path, err := profile.Path(getenv)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(tc.login), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := profile.Resolve(tc.flags, getenv)
			if fairlead.CodeOf(err) != tc.code {
				t.Errorf("got %v, want the code %s", err, tc.code)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
}

func TestOnThisMachine(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:8400": true, "http://localhost": true, "http://[::1]:1": true,
		"https://fairlead.example.com": false, "http://127.0.0.1.evil": false, "http://10.0.0.1": false, "://": false,
	} {
		if got := profile.OnThisMachine(url); got != want {
			t.Errorf("%s: got %v, want %v", url, got, want)
		}
	}
}
