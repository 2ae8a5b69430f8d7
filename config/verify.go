package config

import (
	"fmt"
	"net/url"
	"time"
)

// Verify is an istiod that is asked again and again what it really stored.
type Verify struct {
	Istiod string   `json:"istiod" jsonschema:"http://HOST:PORT of the debug pages of an istiod that is sent everything; 8080 is its default."`
	Every  Duration `json:"every,omitempty" jsonschema:"How often it is asked. Default: 1m."`
}

// The times between two looks at an istiod: each costs it a page with all that it has.
const (
	defaultVerifyEvery = time.Minute
	leastVerifyEvery   = 10 * time.Second
)

func (d *decoder) checkVerify(all []Verify) {
	seen := make(map[string]bool)
	for i := range all {
		v, key := &all[i], fmt.Sprintf("verify[%d]", i)
		u, err := url.Parse(v.Istiod)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "":
			d.problem(key+".istiod", "want http://HOST:PORT")
		case seen[v.Istiod]:
			d.problem(key+".istiod", "%s is there already", v.Istiod)
		}
		seen[v.Istiod] = true
		if v.Every == 0 {
			v.Every = Duration(defaultVerifyEvery)
		}
		if time.Duration(v.Every) < leastVerifyEvery {
			d.problem(key+".every", "want at least %s, got %s", leastVerifyEvery, v.Every)
		}
	}
}
