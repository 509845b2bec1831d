package statefile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/statefile"
)

const (
	seed  = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"
	newer = "NewerSeedOfTheTestsNewerSeedOfTheTestsNewer012"
	state = `{"version":4,"terraform_version":"1.12.6","serial":7,"lineage":"ours","outputs":{"password":{"value":"hunter2","type":"string","sensitive":true}},"resources":[]}`
)

func ringOf(t testing.TB, seeds string, of fairlead.InstallID) installkey.Ring {
	t.Helper()
	r, err := installkey.NewRing(seeds, of)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, with statefile.Sealer, component, state string) []byte {
	t.Helper()
	b, err := statefile.Seal(with, component, []byte(state))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A step encrypts a state. The control plane sees its serial and lineage, and nothing else. The next step opens it.
func TestStory(t *testing.T) {
	keys := ringOf(t, seed, "ins_1")
	stored := sealed(t, keys, "web", state)
	head, err := statefile.Read(stored)
	if want := (statefile.Head{Version: 4, Serial: 7, Lineage: "ours", Key: keys.Current().Public().ID()}); err != nil || head != want {
		t.Errorf("the control plane reads %+v, %v; want %+v", head, err, want)
	}
	if bytes.Contains(stored, []byte("hunter2")) {
		t.Error("the control plane can read the password")
	}
	o, err := statefile.Open(keys, "web", stored)
	if err != nil || string(o.State) != state || !o.Encrypted || !o.Own || !o.Current {
		t.Errorf("opened %+v, %v", o, err)
	}
}

// A later release must read what this one wrote.
func TestEncryptedStateOfTheFirstReleaseOpens(t *testing.T) {
	const stored = `{"version":1000,"serial":7,"lineage":"ours","encrypted_for_install":{"version":4,"state":"RkxLMQEcZOoJzSzlE8i+WFQnoj4UXSCT6gWYnXJ5YXojnrus+gxT2XqA66sAGVqfsctfrFDs+Szf/9cQd0nhehVzuweGkEDkj63Xq0vOu54yIJmhlJx+9lEdlCfAmDqzbmRCCP/g6j8IAKMK3K490lEAHPN0NAF8PTu9JhNWEEX+EVCgHawAfYLT4yTnmQt9AKJ3ymO9JsVJ5XLbMMx3L2mkOpYyF2DwiIWA3l/OGu2b2waX+JBWheI+WExJswBpsagpE8anRiUMGh5Esom4nfefCCGRSA5BF/GnEG3b85hBh5lCxIBXJgZ01LJt58SYc13mNNv9yw=="}}`
	o, err := statefile.Open(ringOf(t, seed, "ins_1"), "web", []byte(stored))
	if err != nil || string(o.State) != state || !o.Own {
		t.Errorf("opened %+v, %v", o, err)
	}
}

// A tool without the runner's help must refuse an encrypted state: it would take an object of its own version for a state
// without resources, and create each resource again.
func TestToolsRefuseTheVersionOfAnEncryptedState(t *testing.T) {
	var of struct{ Version int }
	if err := json.Unmarshal(sealed(t, ringOf(t, seed, "ins_1"), "web", state), &of); err != nil || of.Version <= 4 {
		t.Errorf("the version is %d, %v: the tools know the versions 1 to 4", of.Version, err)
	}
}

func TestOpen(t *testing.T) {
	keys := ringOf(t, seed, "ins_1")
	both := ringOf(t, newer+"\n"+seed, "ins_1")
	own := string(sealed(t, keys, "web", state))
	pushed := string(sealed(t, keys.Current().Public(), "web", state))
	for name, c := range map[string]struct {
		keys   installkey.Ring
		stored string
		want   statefile.Opened
		err    error
	}{
		"a state in clear":                         {keys, state, statefile.Opened{}, nil},
		"a state in clear, and no key":             {installkey.Ring{}, state, statefile.Opened{}, nil},
		"a person pushed it":                       {keys, pushed, statefile.Opened{Encrypted: true, Current: true}, nil},
		"the seed was rotated":                     {both, own, statefile.Opened{Encrypted: true, Own: true}, nil},
		"the runner has no key":                    {installkey.Ring{}, own, statefile.Opened{}, installkey.ErrUnknownKey},
		"the runner has another seed":              {ringOf(t, newer, "ins_1"), own, statefile.Opened{}, installkey.ErrUnknownKey},
		"the state of another install":             {ringOf(t, seed, "ins_2"), own, statefile.Opened{}, installkey.ErrUnknownKey},
		"the state of another component":           {keys, string(sealed(t, keys, "db", state)), statefile.Opened{}, installkey.ErrDamaged},
		"the serial in clear was changed":          {keys, strings.Replace(own, `"serial":7`, `"serial":8`, 1), statefile.Opened{}, installkey.ErrDamaged},
		"the lineage in clear was changed":         {keys, strings.Replace(own, `"ours"`, `"theirs"`, 1), statefile.Opened{}, installkey.ErrDamaged},
		"the version in clear was changed":         {keys, strings.Replace(own, `{"version":4,`, `{"version":3,`, 1), statefile.Opened{}, installkey.ErrDamaged},
		"the encrypted part was changed":           {keys, strings.Replace(own, `"state":"RkxL`, `"state":"RkxM`, 1), statefile.Opened{}, installkey.ErrDamaged},
		"the object claims the tool's version":     {keys, strings.Replace(own, `"version":1000`, `"version":4`, 1), statefile.Opened{}, installkey.ErrDamaged},
		"it is no JSON":                            {keys, "<html>", statefile.Opened{}, installkey.ErrDamaged},
		"a holder of the key sealed another text":  {keys, wrap(t, keys, []byte("no gzip")), statefile.Opened{}, installkey.ErrDamaged},
		"a holder of the key sealed another value": {keys, wrap(t, keys, compressed(t, "4 7 \"theirs\"\n{}")), statefile.Opened{}, installkey.ErrDamaged},
	} {
		got, err := statefile.Open(c.keys, "web", []byte(c.stored))
		if c.err == nil {
			c.want.State = []byte(state)
		}
		if !errors.Is(err, c.err) || string(got.State) != string(c.want.State) || got.Encrypted != c.want.Encrypted || got.Own != c.want.Own || got.Current != c.want.Current {
			t.Errorf("%s: opened %+v, %v; want %+v, %v", name, got, err, c.want, c.err)
		}
	}
}

// wrap returns an encrypted state whose sealed value is not a compressed state.
func wrap(t *testing.T, keys installkey.Ring, value []byte) string {
	t.Helper()
	b, err := keys.Seal("state/web", value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(map[string]any{"version": 1000, "serial": 7, "lineage": "ours", "encrypted_for_install": map[string]any{"version": 4, "state": b}})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func compressed(t *testing.T, value string) []byte {
	t.Helper()
	b, err := installkey.Compress([]byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSealRefusesWhatIsNoState(t *testing.T) {
	keys := ringOf(t, seed, "ins_1")
	for name, text := range map[string]string{"no JSON": "secret", "an encrypted state": string(sealed(t, keys, "web", state)), "nothing": ""} {
		if _, err := statefile.Seal(keys, "web", []byte(text)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := statefile.Seal(installkey.Ring{}, "web", []byte(state)); err == nil {
		t.Error("a state was encrypted without a key")
	}
}

func TestAnyStateOpens(t *testing.T) {
	keys := ringOf(t, seed, "ins_1")
	rapid.Check(t, func(rt *rapid.T) {
		text, err := json.Marshal(map[string]any{"version": rapid.IntRange(0, 9).Draw(rt, "version"), "serial": rapid.Int64Min(0).Draw(rt, "serial"),
			"lineage": rapid.String().Draw(rt, "lineage"), "outputs": rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "outputs")})
		if err != nil {
			rt.Fatal(err)
		}
		o, err := statefile.Open(keys, "web", sealed(t, keys, "web", string(text)))
		if err != nil || !bytes.Equal(o.State, text) {
			rt.Errorf("%s becomes %s, %v", text, o.State, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	keys, err := installkey.NewRing(seed, "ins_1")
	if err != nil {
		f.Fatal(err)
	}
	own, err := statefile.Seal(keys, "web", []byte(state))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte(state))
	f.Add([]byte(`{"version":1000,"encrypted_for_install":{"state":"RkxLMQ=="}}`))
	f.Fuzz(func(t *testing.T, stored []byte) {
		o, err := statefile.Open(keys, "web", stored)
		if err == nil && o.Encrypted && string(o.State) != state {
			t.Errorf("%s opens as %s", stored, o.State)
		}
	})
}

func BenchmarkSealAndOpen(b *testing.B) {
	keys := ringOf(b, seed, "ins_1")
	var text strings.Builder
	text.WriteString(`{"version":4,"serial":7,"lineage":"ours","resources":[""`)
	for i := 0; text.Len() < 200<<10; i++ {
		b, err := keys.Seal("noise", []byte{byte(i)}) // as ids and digests in a state do, it does not compress
		if err != nil {
			panic(err)
		}
		noise, err := json.Marshal(map[string]any{"mode": "managed", "type": "aws_s3_bucket", "name": "logs", "provider": `provider["registry.opentofu.org/hashicorp/aws"]`,
			"instances": []any{map[string]any{"schema_version": 0, "attributes": map[string]any{"arn": "arn:aws:s3:::logs", "id": b, "tags": map[string]string{}}}}})
		if err != nil {
			panic(err)
		}
		text.WriteString(",")
		text.Write(noise)
	}
	text.WriteString("]}")
	b.SetBytes(int64(text.Len()))
	var stored []byte
	for b.Loop() {
		stored = sealed(b, keys, "web", text.String())
		if _, err := statefile.Open(keys, "web", stored); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(stored))/float64(text.Len()), "stored/clear")
}
