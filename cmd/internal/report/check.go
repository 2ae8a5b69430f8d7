package report

import (
	"fmt"
	"io"
	"strings"

	"tributary/cmd/internal/words"
	"tributary/server/admin"
)

// troubles are what somebody should do something about, one a line; none if all is well.
func troubles(st *admin.Status) (all []string) {
	say := func(format string, args ...any) { all = append(all, oneLine(fmt.Sprintf(format, args...))) }
	for _, missing := range st.Missing {
		say("not ready: %s", missing)
	}
	if st.Config.Failed != nil {
		say("the configuration file is refused: %s", st.Config.Error)
	}
	for _, s := range st.Sources {
		if s.State != "healthy" && len(st.Missing) == 0 {
			say("source %s is %s: %s", s.Name, s.State, s.Message)
		}
		if s.Hold != nil {
			say("source %s lost %s and %s, which are held: %s", s.Name, words.Count(s.Hold.Objects, "object", "objects"), words.Count(s.Hold.Endpoints, "endpoint", "endpoints"), s.Hold.Why)
		}
		if s.NotKept != "" {
			say("source %s is not kept on disk: %s", s.Name, s.NotKept)
		}
	}
	if st.Quarantined > 0 {
		say("%s not valid, and quarantined", words.Count(st.Quarantined, "object is", "objects are"))
	}
	for _, r := range st.Rejected {
		say("Envoys reject %s: %s", r.Key(), r.Error)
	}
	for _, c := range st.Certificates {
		if c.Expired {
			say("the certificate of %s has expired", c.Listener)
		}
		if c.Trouble != "" {
			say("the certificate of %s is not in force: %s", c.Listener, c.Trouble)
		}
	}
	for _, v := range st.Verified {
		if v.Wrong() > 0 {
			say("istiod %s does not have %s as served", v.Istiod, words.Count(v.Wrong(), "object", "objects"))
		}
		if v.Error != "" {
			say("istiod %s cannot be verified: %s", v.Istiod, v.Error)
		}
	}
	for _, c := range st.Clients {
		for _, r := range c.Rejects {
			say("%s rejects %s: %s", client(c.Node, c.Peer), r.TypeURL, r.Error)
		}
	}
	return all
}

// Check writes in a few lines whether all is well, and reports it.
func Check(w io.Writer, st *admin.Status) (well bool, err error) {
	all := troubles(st)
	text := fmt.Sprintf("ok: %s, %s, %s\n", words.Count(len(st.Sources), "source", "sources"), words.Count(st.Objects, "object", "objects"), words.Count(len(st.Clients), "client", "clients"))
	if len(all) > 0 {
		text = strings.Join(all, "\n") + "\n"
	}
	_, err = io.WriteString(w, text)
	return len(all) == 0, err
}
