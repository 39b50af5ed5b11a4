"""Tiny samples of GLUE in its official file formats: task → file name → content."""

from __future__ import annotations

SAMPLES: dict[str, dict[str, str]] = {
    "CoLA": {
        "train.tsv": 'gj04\t1\t\tShe said "no.\ngj04\t0\t*\tShe hoarse.\n',
        "dev.tsv": "cj99\t0\t?*\tThe more eat.\n",
        "test.tsv": "index\tsentence\n0\tBill.\n",
    },
    "SST-2": {
        "train.tsv": "sentence\tlabel\nno wit \t0\nso good \t1\n",
        "dev.tsv": "sentence\tlabel\nit 's fine . \t1\n",
        "test.tsv": "index\tsentence\n0\tuneasy .\n",
    },
    "MRPC": {
        "train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        '1\t7\t8\tHe said "yes.\tHe agreed.\n0\t9\t10\tA.\tB.\n',
        "dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tOne.\tUna.\n",
    },
    "STS-B": {
        split: "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t5.000\n"
        "1\tmain\tMSRvid\t2012\t2\tnone\tnone\tA man.\tA dog.\t0.500\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "QQP": {
        "train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "1\t2\t3\tWhy?\tHow come?\t1\n4\t5\t6\tcut off\n7\t8\t9\tWho?\tWhen?\t0\n",
        "dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA?\tB?\t0\n",
    },
    "MNLI": {
        "train.tsv": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t1\t1n\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tIt is wet.\tneutral\tentailment\n"
        "1\t1\t1e\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tIt is dry.\tneutral\tcontradiction\n"
        "2\t1\t1c\tfiction\t( a )\t( b )\t(S a)\t(S b)\tIt rains.\tI sing.\tneutral\tneutral\n",
        **{
            f"dev_{part}.tsv": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
            "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\t"
            "gold_label\n"
            f"0\t1\t1n\t{part}\t( a )\t( b )\t(S a)\t(S b)\tHe ran.\tHe moved.\ta\tb\tc\td\te\tentailment\n"
            f"1\t1\t1n\t{part}\t( a )\t( b )\t(S a)\t(S b)\tHe ran.\tHe won.\ta\tb\tc\td\te\t-\n"
            for part in ("matched", "mismatched")
        },
    },
    "QNLI": {
        split: "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1812.\tentailment\n1\tWho?\tIn May.\tnot_entailment\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "RTE": {
        split: "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n1\tC.\tD.\tnot_entailment\n"
        for split in ("train.tsv", "dev.tsv")
    },
    "WNLI": {
        split: "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t0\n1\tC.\tD.\t1\n" for split in ("train.tsv", "dev.tsv")
    },
}
