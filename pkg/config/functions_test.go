package config_test

import (
	"flag"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
)

// filled are the environments that infrastructure makes, with a value in every
// field.
var filled = map[string]any{
	"controlapi": &config.ControlAPI{},
	"runnerapi":  &config.RunnerAPI{},
	"dispatch":   &config.Dispatch{},
	"sweep":      &config.Sweep{},
	"logindex":   &config.LogIndex{},
	"webhook":    &config.Webhook{},
	"runner":     &config.RunnerStack{},
}

// What infrastructure writes is what the program reads.
func TestEnvironIsLoaded(t *testing.T) {
	for name, cfg := range filled {
		t.Run(name, func(t *testing.T) {
			want := reflect.New(reflect.TypeOf(cfg).Elem())
			for i := range want.Elem().NumField() {
				switch f := want.Elem().Field(i); f.Interface().(type) {
				case string:
					f.SetString(want.Elem().Type().Field(i).Name)
				case int:
					f.SetInt(7)
				case time.Duration:
					f.SetInt(int64(90 * time.Second))
				case []string:
					f.Set(reflect.ValueOf([]string{"a", "b"}))
				case []time.Duration:
					f.Set(reflect.ValueOf([]time.Duration{time.Second, 90 * time.Second}))
				default:
					t.Fatalf("field %d has no sample", i)
				}
			}
			environ, err := config.Environ(want.Interface())
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for k, v := range environ {
				list = append(list, k+"="+v)
			}
			fs := flag.NewFlagSet(name, flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			got := reflect.New(want.Elem().Type())
			if err := config.Load(got.Interface(), fs, nil, list); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Errorf("loaded %+v, want %+v", got.Elem(), want.Elem())
			}
			if len(environ) != len(config.Variables(cfg)) {
				t.Errorf("%d variables are written, %d are declared", len(environ), len(config.Variables(cfg)))
			}
		})
	}
}

func TestEnvironRefusesWhatIsMissing(t *testing.T) {
	if _, err := config.Environ(&config.Dispatch{QueuePrefix: "q"}); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_EVENT_BUS") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

// A function must not start without a name that it needs, and find out at its
// first request.
func TestLoadRefusesAnEmptyName(t *testing.T) {
	fs := flag.NewFlagSet("dispatch", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	err := config.Load(&config.Dispatch{}, fs, nil, []string{"FAIRLEAD_QUEUE_PREFIX=q", "FAIRLEAD_EVENT_BUS="})
	if err == nil || !strings.Contains(err.Error(), "FAIRLEAD_EVENT_BUS") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestEveryVariableOfAFunctionIsDocumented(t *testing.T) {
	for name, cfg := range filled {
		for _, v := range config.Variables(cfg) {
			if v.Doc == "" || !strings.HasPrefix(v.Name, "FAIRLEAD_") {
				t.Errorf("%s: %+v lacks documentation or the prefix", name, v)
			}
			if v.Flag != "" {
				t.Errorf("%s: %s has a flag, and a function has no command line", name, v.Name)
			}
			for _, word := range []string{"TOKEN", "SECRET", "PASSWORD"} {
				if strings.HasSuffix(v.Name, word) {
					t.Errorf("%s: %s looks like a secret; name its key instead", name, v.Name)
				}
			}
		}
	}
}
