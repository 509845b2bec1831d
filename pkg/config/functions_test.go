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

// filled holds the environments that the infrastructure code sets, by name.
var filled = map[string]any{
	"controlapi": &config.ControlAPI{},
	"sessionapi": &config.SessionAPI{},
	"runnerapi":  &config.RunnerAPI{},
	"dispatch":   &config.Dispatch{},
	"audit":      &config.Audit{},
	"sweep":      &config.Sweep{},
	"logindex":   &config.LogIndex{},
	"webhook":    &config.Webhook{},
	"runner":     &config.RunnerStack{},
}

// The program loads the same values that the infrastructure code passed to Environ.
func TestEnvironIsLoaded(t *testing.T) {
	for name, cfg := range filled {
		t.Run(name, func(t *testing.T) {
			want := reflect.New(reflect.TypeOf(cfg).Elem())
			for i := range want.Elem().NumField() {
				switch f := want.Elem().Field(i); f.Interface().(type) {
				case string:
					f.SetString(want.Elem().Type().Field(i).Name)
				case config.Switch:
					f.Set(reflect.ValueOf(config.On))
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
				t.Errorf("Environ returns %d variables, %d are declared", len(environ), len(config.Variables(cfg)))
			}
		})
	}
}

func TestEnvironRefusesEmptyVariables(t *testing.T) {
	if _, err := config.Environ(&config.Dispatch{QueuePrefix: "q", CancelTable: "c"}); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_EVENT_BUS") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

// A function without a required name must fail at its start, not at its first
// request.
func TestLoadRefusesEmptyVariables(t *testing.T) {
	fs := flag.NewFlagSet("dispatch", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	err := config.Load(&config.Dispatch{}, fs, nil, []string{"FAIRLEAD_QUEUE_PREFIX=q", "FAIRLEAD_EVENT_BUS="})
	if err == nil || !strings.Contains(err.Error(), "FAIRLEAD_EVENT_BUS") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

// A misspelled value must not switch direct launch off: its jobs would wait without a reason.
func TestSwitchIsOnOrOff(t *testing.T) {
	for _, text := range []string{"On", "true", "enabled"} {
		fs := flag.NewFlagSet("controlapi", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		var c struct {
			Direct config.Switch `env:"FAIRLEAD_DIRECT_LAUNCH" envDefault:"off"`
		}
		if err := config.Load(&c, fs, nil, []string{"FAIRLEAD_DIRECT_LAUNCH=" + text}); err == nil || !strings.Contains(err.Error(), "neither on nor off") {
			t.Errorf("%s: got %v, %v", text, c.Direct, err)
		}
		if err := config.Load(&c, fs, nil, nil); err != nil || c.Direct != config.Off {
			t.Errorf("without a value: got %v, %v", c.Direct, err)
		}
	}
}

func TestFunctionVariablesAreDocumented(t *testing.T) {
	for name, cfg := range filled {
		for _, v := range config.Variables(cfg) {
			if v.Doc == "" || !strings.HasPrefix(v.Name, "FAIRLEAD_") && !strings.HasPrefix(v.Name, "OTEL_") {
				t.Errorf("%s: %+v lacks documentation or the prefix", name, v)
			}
			if v.Flag != "" {
				t.Errorf("%s: %s has a flag, but a function has no command line", name, v.Name)
			}
			for _, suffix := range []string{"TOKEN", "SECRET", "PASSWORD"} {
				if strings.HasSuffix(v.Name, suffix) {
					t.Errorf("%s: %s looks like a secret; name its key instead", name, v.Name)
				}
			}
		}
	}
}
