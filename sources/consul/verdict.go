package consul

import "tributary/sources/consul/judge"

// This file compares answers of Consul with the state, without I/O and time. Package judge decides the verdict.

// serviceAnswer is an answer about one service.
type serviceAnswer struct {
	judge.Answer
	instances instances
	lost      int // endpoints that an earlier run published, and that no instance in any scope has
}

// listing is an answer about the names of services.
type listing struct {
	judge.Answer
	names         map[string][]string // the selected names, with their tags
	unselected    []string            // names that the settings do not select, in order
	nodes         judge.CreateIndexes // nodes of some listed services, if others are missing: see readWitnesses
	confirmedRead int                 // number of a confirmed read; 0 for others
}

// verdictOn returns the verdict on an answer, compared with the instances of the last one. Indexes are not compared:
// those of blocking and other queries count different things.
func (s *service) verdictOn(answer serviceAnswer) judge.Verdict {
	before, now := s.instances, answer.instances
	verdict := judge.Judge(judge.Compared{
		HasBaseline: s.readState == readApplied,
		Before:      len(before.list) + answer.lost,
		Now:         len(now.list),
		Missing:     len(now.missing(before)) + answer.lost,
		Same:        before.sum == now.sum && answer.lost == 0,
	}, answer.Answer)
	if len(now.list) == 0 && (verdict == judge.Unchanged || verdict == judge.Changed) {
		return judge.Emptied
	}
	return verdict
}

// compare compares a listing with the last one, which the record of an earlier run may have left.
func (s *catalogScope) compare(names listing) judge.Compared {
	compared := judge.Compared{
		HasBaseline:  s.namesRead || s.recorded != nil,
		Index:        s.listing.Index,
		Before:       len(s.listing.names),
		Now:          len(names.names),
		Outage:       s.trouble != nil || !s.namesRead,
		OneByOne:     true,
		OtherCluster: judge.IsOtherCluster(s.clusterID, names.Cluster),
	}
	for name := range s.listing.names {
		if _, listed := names.names[name]; !listed {
			compared.Missing++
		}
	}
	compared.Same = compared.Missing == 0 && compared.Before == compared.Now
	return compared
}

// verdictOnNames returns the verdict on a listing. If Consul lost its data (wiped), missing services prove no loss
// until its agents registered them again.
func verdictOnNames(compared judge.Compared, answer judge.Answer) (verdict judge.Verdict, wiped bool) {
	verdict = judge.Judge(compared, answer)
	switch verdict {
	case judge.Doubtful, judge.Foreign, judge.Denied:
		return verdict, false
	case judge.Partial:
		compared.Missing = 0 // they may be hidden
	}
	wiped = judge.Reset(compared, answer)
	if wiped && verdict == judge.Unchanged {
		verdict = judge.Changed
	}
	return verdict, wiped
}
