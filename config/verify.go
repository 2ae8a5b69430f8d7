package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Verify is an istiod or an Envoy that is asked again and again what it really has.
type Verify struct {
	// http://HOST:PORT of the debug pages of an istiod that is sent everything; 8080 is its default.
	Istiod string `json:"istiod,omitempty"`
	// http://HOST:PORT or unix:///PATH of the admin server of an Envoy that is a client. One of istiod and envoy is needed.
	Envoy string `json:"envoy,omitempty"`
	// How often it is asked. Default: 1m.
	Every Duration `json:"every,omitempty"`
}

// The times between two looks at an istiod or Envoy: each costs it a page with all that it has.
const (
	defaultVerifyEvery = time.Minute
	leastVerifyEvery   = 10 * time.Second
)

func (d *decoder) checkVerify(all []Verify) {
	seen := make(map[string]bool)
	for i := range all {
		v, key := &all[i], fmt.Sprintf("verify[%d]", i)
		where, field, want := v.Istiod, key+".istiod", "want http://HOST:PORT"
		if v.Envoy != "" {
			where, field, want = v.Envoy, key+".envoy", "want http://HOST:PORT or unix:///PATH"
		}
		if v.Istiod == "" && v.Envoy == "" {
			want = "want http://HOST:PORT, or envoy: http://HOST:PORT or unix:///PATH"
		}
		switch {
		case v.Istiod != "" && v.Envoy != "":
			d.problem(key, "want istiod or envoy, and not both")
		case !isPeer(where) && (v.Envoy == "" || !isSocket(where)):
			d.problem(field, "%s", want)
		case seen[where]:
			d.problem(field, "%s is there already", where)
		}
		seen[where] = true
		if v.Every == 0 {
			v.Every = Duration(defaultVerifyEvery)
		}
		if time.Duration(v.Every) < leastVerifyEvery {
			d.problem(key+".every", "want at least %s, got %s", leastVerifyEvery, v.Every)
		}
	}
}

func isPeer(where string) bool {
	u, err := url.Parse(where)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.RawQuery == ""
}

func isSocket(where string) bool {
	path, ok := strings.CutPrefix(where, "unix://")
	return ok && strings.HasPrefix(path, "/")
}
