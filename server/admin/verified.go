package admin

import (
	"time"

	"tributary/server/verify"
)

// Verified is how an istiod has what is served.
type Verified struct {
	Istiod    string     `json:"istiod"`
	At        *time.Time `json:"at,omitempty"` // when it was last compared
	Missing   int        `json:"missing"`
	Stale     int        `json:"stale"`
	Different int        `json:"different"`
	Error     string     `json:"error,omitempty"` // why the last attempt failed
}

// Wrong is how many objects it does not have as they are served.
func (v *Verified) Wrong() int { return v.Missing + v.Stale + v.Different }

func verifiedOf(r *verify.Report) Verified {
	return Verified{
		Istiod: r.Istiod, At: optional(r.At), Missing: r.Count(verify.Missing), Stale: r.Count(verify.Stale),
		Different: r.Count(verify.Different), Error: r.Error,
	}
}

func optional(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (s *Server) reports() []verify.Report {
	if s.opts.Verified == nil {
		return nil
	}
	return s.opts.Verified()
}

func (s *Server) verified() any { return append([]verify.Report{}, s.reports()...) }
